"""All the checks: each table adds its own when it is imported."""

import every_admin_api
import every_consumer_group_api
import every_data_api
import every_group_api
import every_move_api
import every_txn_api
from every_api_check import CHECKS

TABLES = (
    every_admin_api,
    every_consumer_group_api,
    every_data_api,
    every_group_api,
    every_move_api,
    every_txn_api,
)
__all__ = ["CHECKS", "TABLES"]
