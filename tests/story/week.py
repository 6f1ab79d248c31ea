"""The lines of a first week, each with its exit code and words of its answer. ``python -m tests.story`` types them."""

from typing import Final

SHORT: Final = r"""
$ fluvial lss
2 no such command: command=lss did_you_mean=ls
$ fluvial drop-table shop.orders
2 fix='fluvial drop db.t'
$ fluvial drop shop.ordres
2 did_you_mean=shop.orders
$ fluvial create shop.orders "id INT"
2 table exists already
$ fluvial rename shop.ordres shop.sales
2 did_you_mean=shop.orders
$ fluvial topics
2 no brokers: fix='give --brokers
$ fluvial ls shopp
2 no such database: database=shopp did_you_mean=['shop']
$ fluvial ls --warehouse nowhere
2 no such directory
$ fluvial read shop.ordres
2 did_you_mean=shop.orders
$ fluvial read orders
2 a table is named database.table
$ fluvial read shop.orders --filter "amout > 1"
2 unknown column: column=amout did_you_mean=['amount']
$ fluvial read shop.orders --filter "state = new"
2 a text is in quotes: 'new'
$ fluvial read shop.orders --filter "upper(state) = 'NEW'"
2 a column is compared with a non-literal: sql='UPPER(state)'
$ fluvial read shop.orders --filter "amount >"
2 a part is missing
$ fluvial read shop.orders --columns id,stat
2 no such column: column=stat
$ fluvial read shop.orders --tag eod
2 Did you mean '--at'
$ fluvial read 'shop.orders$branch_devv'
2 no such branch: table=shop.orders branch=devv branches=['main']
$ fluvial diff shop.orders 1 77
2 no such snapshot: table=shop.orders version=snapshot.77 earliest=1
$ fluvial create-tag shop.orders --name "a/b"
2 invalid tag name
$ fluvial delete-tag shop.orders --name nosuch
2 no such tag: table=shop.orders tag=nosuch tags=['eod']
$ fluvial create-branch shop.orders --name 7
2 a branch name cannot be a number
$ fluvial delete-branch shop.orders --name nosuch
2 no such branch
$ fluvial rollback shop.orders --to nosuch
2 Did you mean one of
$ fluvial compact shop.ordres
2 did_you_mean=shop.orders
$ fluvial compact shop.orders --partitions dt=1
2 not a partition column: table=shop.orders column=dt
$ fluvial rescale shop.orders --buckets 0
2 Did you mean '--bucket-num'
$ fluvial copy --source-table shop.orders --target-table shop.orders
2 table exists already
$ fluvial sql "SELEC 1"
2 did_you_mean=SELECT
$ fluvial sql -e "DESCRIBE shop.ordres"
2 did_you_mean=shop.orders
$ fluvial sql "OPTIMIZE shop.orders"
2 write="CALL sys.compact('db.t')"
$ fluvial sql "VACUUM shop.orders"
2 write="CALL sys.expire_snapshots('db.t')"
$ fluvial sql "RESTORE shop.orders"
2 write="CALL sys.rollback_to_as_latest('db.t', ...)"
$ fluvial sql "ALTER TABLE shop.orders EXECUTE compact"
2 a procedure is called
$ fluvial sql "ALTER TABLE shop.orders ADD CONSTRAINT c CHECK (amount > 5)"
2 rows break a constraint: table=shop.orders constraint=c
$ fluvial sql "ALTER TABLE shop.orders ADD COLUMN amount INT"
2 column exists already
$ fluvial sql "ALTER TABLE shop.orders DROP COLUMN id"
2 used_by=['the primary key']
$ fluvial sql "ALTER TABLE shop.orders SET ('buket' = '3')"
2 did_you_mean=['bucket'
$ fluvial sql "ALTER TABLE shop.orders SET ('merge-engine' = 'first-row')"
2 option cannot change once there are rows
$ fluvial sql "CREATE TABLE shop.orders (id INT)"
2 table exists already: table=shop.orders fix=IF NOT EXISTS, or OR REPLACE
$ fluvial sql "CREATE TABLE shop.n (id INTT)"
2 unknown type
$ fluvial sql "CALL sys.compat('shop.orders')"
2 did_you_mean=sys.compact
$ fluvial sql "CALL sys.compact(tabel => 'shop.orders')"
2 argument=tabel did_you_mean=table
$ fluvial sql "CALL sys.help('compct')"
2 did_you_mean=compact
$ fluvial validate nosuch.yaml
2 job file cannot be read: file=nosuch.yaml
$ fluvial validate bad-yaml.yaml
2 not a YAML file: file=bad-yaml.yaml line=2
$ fluvial validate bad-key.yaml
2 key=pipelines[0].chekpoint file=bad-key.yaml line=11 did_you_mean=checkpoint
$ fluvial validate bad-type.yaml
2 not a type
$ fluvial validate bad-target.yaml
2 target is no table of the job file: target=shop.order did_you_mean=shop.orders
$ fluvial validate bad-rule.yaml
2 a batch that is repeated would be decided otherwise
$ fluvial plan bad-key.yaml
2 did_you_mean=checkpoint
$ fluvial run job.yaml --profile nosuch
2 no such profile
$ fluvial run job.yaml --set stop-timeout
2 an override is written key.key=value
$ fluvial run job.yaml --pipeline nosuch
2 no such pipeline: pipeline=nosuch job=shop known=orders
$ fluvial lag shop.orders --checkpoint nosuch
2 no checkpoint of a streaming query
$ fluvial lineage shop.ordres
2 did_you_mean=shop.orders
$ fluvial recover shop.orders --snapshot 77
2 nothing to recover
$ fluvial verify shop.ordres
2 did_you_mean=shop.orders
$ fluvial export shop.orders
2 missing option '--path'
$ fluvial init jobs --from-topic orders --warehouse lake
2 no such option '--warehouse'
"""
"""What takes no Spark and no broker."""

LONG: Final = r"""
$ fluvial sql "SELECT citty FROM shop.orders"
2 citty
$ JAVA_HOME=/nowhere fluvial run job.yaml
2 /nowhere
$ fluvial plan --from-topics 'shop.*' --brokers localhost:1
2 --from-topics needs more: missing=--database
"""
"""What starts Spark, or waits for a broker."""


def steps(text: str) -> list[tuple[str, int, str]]:
    """Each line with its exit code and words of its answer."""
    lines = text.strip().splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [(line.removeprefix("$ "), int(said.split(" ", 1)[0]), said.split(" ", 1)[1]) for line, said in pairs]
