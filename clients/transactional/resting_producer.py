"""Producers that nobody uses for a while: what librdkafka tells of them is heard all the same.

INVARIANT  what is told of a producer at rest is taken within seconds; what became of a record is told to nobody but the thread
           that flushes, ends its transaction or polls.
PREVENTS   an idle lane of half messages that grows by gigabytes a day: librdkafka keeps the statistics that it was asked for,
           five a second of several kilobytes, until somebody polls.
PROVED BY  tests/clients/test_transactional_identity.py::test_a_producer_at_rest_keeps_no_statistics
"""

import logging
import os
import threading
import time
import traceback
import weakref
from collections.abc import Mapping
from typing import Any, Final

from .telling_producer import TellingProducer

HEAR_S: Final = 1.0

log = logging.getLogger("fencepost.clients")


class RestingProducer(TellingProducer):
    """At work from its first record on, until all of them were told of."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self._turn = threading.RLock()
        self._is_at_work = False
        _listener.add(self)

    def produce(self, *arguments: Any, **named: Any) -> None:
        if not self._is_at_work:
            with self._turn:
                self._is_at_work = True
        super().produce(*arguments, **named)

    def flush(self, *arguments: Any, **named: Any) -> Any:
        left = super().flush(*arguments, **named)
        self._is_at_work = left != 0
        return left

    def commit_transaction(self, *arguments: Any, **named: Any) -> Any:
        done = super().commit_transaction(*arguments, **named)
        self._is_at_work = False
        return done

    def abort_transaction(self, *arguments: Any, **named: Any) -> Any:
        done = super().abort_transaction(*arguments, **named)
        self._is_at_work = False
        return done

    def hear(self) -> None:
        """By another thread than its owner's."""
        with self._turn:
            if not self._is_at_work:
                self.poll(0)


class _Listener:
    """One thread for all of them, which ends with the last one."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Of a process that was forked: it has none of its parent's threads, and a lock that one of them may have held."""
        self._lock = threading.Lock()
        self._producers: weakref.WeakSet[RestingProducer] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def add(self, producer: RestingProducer) -> None:
        with self._lock:
            self._producers.add(producer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="producer-news", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(HEAR_S)
            with self._lock:
                # No more than a weak one: whoever is dropped meanwhile takes its threads with it.
                found = [weakref.ref(each) for each in self._producers]
                if not found:
                    self._thread = None
                    return
            for each in found:
                self._hear(each())

    def _hear(self, producer: RestingProducer | None) -> None:
        if producer is None:
            return
        try:
            producer.hear()
        except Exception as raised:  # noqa: BLE001 - its callbacks raised; those of the others are heard on
            told = "".join(traceback.format_exception(raised))
            log.warning("a callback of a producer at rest raised: %s", told)


_listener: Final = _Listener()
os.register_at_fork(after_in_child=_listener.begin)
