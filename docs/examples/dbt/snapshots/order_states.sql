{% snapshot order_states %}
{{ config(
    strategy='check',
    unique_key='id',
    check_cols=['state'],
    tblproperties={'primary-key': 'dbt_scd_id', 'bucket': '1'}
) }}
select id, state from {{ source('shop', 'orders') }}
{% endsnapshot %}
