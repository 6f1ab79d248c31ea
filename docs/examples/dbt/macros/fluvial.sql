{# What dbt-spark has to know of Fluvial: copy this file into a project. #}

{# The catalog makes the table: no USING. Its options, with the key, are tblproperties. #}
{% macro spark__file_format_clause() %}{% endmacro %}

{# dbt-spark allows MERGE and snapshots for the formats that it knows by name, of which Iceberg's is this kind of table. #}
{% macro spark__list_relations_without_caching(relation) %}
  {% set found = run_query("show table extended in " ~ relation.schema ~ " like '*'") %}
  {% set rows = [] %}
  {% for row in found %}
    {% do rows.append((row[0], row[1], row[2], row[3] | replace("Provider: fluvial", "Provider: iceberg"))) %}
  {% endfor %}
  {{ return(rows) }}
{% endmacro %}

{# The catalog stores tables: the view that a snapshot stages its rows in lives as long as its connection. #}
{% macro spark__create_view_as(relation, sql) %}
  {% if config.get("materialized") == "view" %}
    {% do exceptions.raise_compiler_error("Fluvial stores tables, no views: materialized='table' or 'ephemeral'") %}
  {% endif %}
  create or replace temporary view {{ relation.identifier }} as {{ sql }}
{% endmacro %}
