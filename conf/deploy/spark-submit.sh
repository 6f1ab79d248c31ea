#!/usr/bin/env bash
# A job on a cluster that has no Fluvial: the package travels with it. What Fluvial needs (pyarrow, confluent-kafka, ...)
# must be on the workers, or in an archive of an environment: SUBMIT_OPTIONS="--archives env.tar.gz#env".
#
#   spark-submit.sh spark://master:7077 conf/orders.yaml --profile once       standalone
#   spark-submit.sh spark://master:7077 cdc run conf/shop.yaml --once         standalone, a whole database
#   spark-submit.sh yarn                conf/orders.yaml --profile once       YARN, client mode
#   spark-submit.sh k8s://https://api:6443 conf/orders.yaml --profile once    Kubernetes, client mode, from a pod
#
# Leave `spark.master` out of the job file: it would win over what stands here.
# SIGTERM reaches spark-submit, not the driver: it ends at once, and the next run goes on where this one was. For an end
# after the running micro-batch, start the driver without spark-submit: `fluvial run` with `spark: {master: spark://...}`.
set -euo pipefail

master=$1 job=$2
shift 2
ship=${SHIP:-.fluvial/ship}
[[ -e $ship/fluvial.zip ]] || fluvial package "$ship"

# Spark plans Python sources in a process of the driver that does not look into --py-files, but at the path.
export PYTHONPATH=$ship/fluvial.zip${PYTHONPATH:+:$PYTHONPATH}
# The driver says warnings and errors; a file of log4j that is given wins.
if [[ ${SPARK_SUBMIT_OPTS:-} != *log4j2.configurationFile=* ]]; then
    here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
    [[ ! -e $here/log4j2.properties ]] ||
        export SPARK_SUBMIT_OPTS="${SPARK_SUBMIT_OPTS:-} -Dlog4j2.configurationFile=file:$here/log4j2.properties"
fi
# shellcheck disable=SC2086  # several options in one variable
exec "${SPARK_HOME:+$SPARK_HOME/bin/}spark-submit" --master "$master" --py-files "$ship/fluvial.zip" ${SUBMIT_OPTIONS:-} \
    "$ship/fluvial_job.py" "$job" "$@"
