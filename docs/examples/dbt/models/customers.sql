{{ config(
    materialized='incremental',
    incremental_strategy='merge',
    unique_key='customer',
    tblproperties={'primary-key': 'customer', 'bucket': '1'}
) }}

select customer, sum(amount) as amount, count(*) as orders
from {{ source('shop', 'orders') }}
{% if is_incremental() %}
where customer in (select customer from {{ source('shop', 'orders') }} where id > {{ var('after', 0) }})
{% endif %}
group by customer
