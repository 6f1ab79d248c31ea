"""SQL that a table stores: expressions of its columns by Spark's own functions, which see values and nothing else.

A table's files may be another's, and Spark runs what they say in the process of who reads: a function can load a
library or read a file, and a query can read other tables. So a stored expression calls what is listed here, and is no
query. A function that is not known is a matter of who reads, whose own queries and views may call any.
Source: the lexer of Spark's SQL; the functions of Spark 4.3 by group.
"""

import re
from typing import Final

_HARMLESS: Final = frozenset(
    word
    for words in (
        # types, and what stands before a bracket without being a function
        "bigint binary boolean cast try_cast char date decimal dec numeric double float int smallint string time",
        "timestamp tinyint varchar and or not in when then else case between like ilike rlike regexp any all some div",
        "interval is distinct as",
        # numbers
        "abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp",
        "expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod positive pow",
        "power radians rand randn random rint round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod",
        "try_multiply try_subtract unhex uniform width_bucket bit_count bit_get getbit shiftleft shiftright",
        "shiftrightunsigned",
        # conditions
        "coalesce if iff ifnull nanvl nullif nullifzero nvl nvl2 zeroifnull equal_null isnan isnotnull isnull decode",
        "regexp_like",
        # times
        "add_months convert_timezone curdate current_date current_time current_timestamp current_timezone date_add",
        "date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname",
        "dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtime",
        "localtimestamp make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz",
        "make_timestamp_ntz make_ym_interval minute month monthname months_between next_day now quarter second",
        "time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis",
        "time_to_seconds time_trunc timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds timestampadd",
        "timestampdiff to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp",
        "to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz",
        "try_to_date try_to_time try_to_timestamp unix_date unix_micros unix_millis unix_nanos unix_seconds",
        "unix_timestamp weekday weekofyear year timestamp_ntz timestamp_ltz",
        # texts and bytes
        "ascii base64 bit_length btrim character_length char_length chr collate collation concat concat_ws contains",
        "elt encode endswith find_in_set format_number format_string from_base32 initcap instr is_valid_utf8",
        "jaro_winkler_similarity lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8",
        "mask octet_length overlay position printf quote randstr regexp_count regexp_extract regexp_extract_all",
        "regexp_instr regexp_replace regexp_substr repeat replace reverse right rpad rtrim sentences soundex space",
        "split split_part startswith substr substring substring_index to_base32 to_binary to_char to_number to_varchar",
        "translate trim try_to_binary try_to_number try_validate_utf8 ucase unbase64 upper validate_utf8 crc32 hash",
        "md5 sha sha1 sha2 xxhash64 hmac aes_decrypt aes_encrypt try_aes_decrypt parse_url try_parse_url",
        "try_url_decode url_decode url_encode",
        # nested values
        "array array_append array_compact array_contains array_distinct array_except array_insert array_intersect",
        "array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_union",
        "arrays_overlap arrays_zip flatten get sequence shuffle slice sort_array cardinality element_at size",
        "try_element_at aggregate array_sort exists filter forall map_filter map_zip_with reduce transform",
        "transform_keys transform_values zip_with map map_concat map_contains_key map_entries map_from_arrays",
        "map_from_entries map_keys map_values str_to_map named_struct struct from_json get_json_object",
        "json_array_length json_object_keys schema_of_json to_json from_csv schema_of_csv to_csv is_valid_variant",
        "is_variant_null parse_json schema_of_variant to_variant_object try_parse_json try_variant_get variant_get",
        "vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize",
        # others
        "assert_true raise_error typeof uuid monotonically_increasing_id current_user session_user user",
        "current_catalog current_database current_schema",
    )
    for word in words.split()
)
_OF_QUERIES: Final = frozenset(["select", "table", "values", "with", "lateral", "using", "over", "identifier"])
_STRINGS: Final = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_REST: Final = r"`[^`]*`|\w+|\|>|--|/\*|[^\s]"
_READINGS: Final = tuple(
    re.compile(rf"{raw}{_STRINGS}|{_REST}", re.DOTALL) for raw in ("", r"[rR]'[^']*'|[rR]\"[^\"]*\"|")
)
"""With strings that have no escapes, and without: they must not differ in what is called."""
_BRACKETS: Final = {"(": ")", "[": "]"}
_QUOTES: Final = "'\"`rR"
_NEVER: Final = frozenset({"--", "/*", ";", "|>", "'", '"', "`"})
_NAMED: Final = re.compile(r"\s*(`[^`]*`|\w+)\s+AS\s", re.IGNORECASE)


def check_expression(text: str) -> None:
    """Refuse what a stored expression must not do. Raises: ValueError with what is expected.

    A name that is a word of queries is written in backticks.
    """
    if "${" in text:  # which Spark replaces by a setting of who reads, in strings too
        raise ValueError("expected='an expression without ${'")
    for reading in _READINGS:
        if (wanted := _wanted(reading.findall(text))) is not None:
            raise ValueError(f"expected='{wanted}'")


def check_computed(text: str) -> None:
    """``check_expression`` of ``name AS expression``."""
    check_expression(_NAMED.sub("", text, count=1))


def _wanted(tokens: list[str]) -> str | None:
    """The words for what may stand in place of the first token that is refused; None: every token is fine."""
    expected, before, second = [], "", ""
    for token in tokens:
        word = token.lower()
        if token in _NEVER or not (token.isascii() or token[0] in _QUOTES or token.isidentifier()):
            return f"an expression without {token}"
        if (word in _OF_QUERIES and before != ".") or (word == "from" and before == "("):
            return f"an expression of columns, and no query; a column of this name in backticks: `{token}`"
        if token == "(" and (before[:1] == "`" or before[:1].isidentifier() or before[:1].isdigit()):
            name = before.strip("`").lower()
            if name not in _HARMLESS or second[:1] in {".", "`"}:
                return f"no function but those of Spark that see their arguments alone; {name} in a query or a view"
        if token in _BRACKETS:
            expected.append(_BRACKETS[token])
        elif token in _BRACKETS.values() and (not expected or expected.pop() != token):
            return "brackets in pairs"
        before, second = token, before
    return "brackets in pairs" if expected else None
