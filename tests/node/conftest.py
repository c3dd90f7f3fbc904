"""The checks of every API are in modules of their own: their assertions say what they compared, too."""

import pytest

pytest.register_assert_rewrite(
    "every_admin_api",
    "every_consumer_group_api",
    "every_data_api",
    "every_group_api",
    "every_move_api",
    "every_txn_api",
)
