-- The rows of the given hours are replaced in the transaction that inserts them: also of an hour that has none any more.
{{ config(
    materialized="incremental",
    incremental_strategy="append",
    pre_hook="{% if is_incremental() %} delete from {{ this }} where list_contains({{ var('hours') }}, event_hour) {% endif %}",
) }}
select event_hour, country, sum(price) as price_sum, count(*) as count_all
{% if var("files") %}
from read_parquet({{ var("files") }}, hive_partitioning = false)
{% else %}
from (select null::varchar as event_hour, null::varchar as country, null::double as price) where false
{% endif %}
group by event_hour, country
