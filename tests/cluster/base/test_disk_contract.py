"""What `ports.Disk` and `ports.File` promise, asked of the real disk and of the simulated one."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def scenario(test: Any) -> Any:
    """Write a contract test as `async def test(place)`; it runs on the host of the fixture."""

    def run(host: Any) -> None:
        host.run(test)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scenario
async def test_appended_bytes_can_be_read_at_once_and_by_whoever_opens_later(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"ab", bytearray(b"cd"), memoryview(b"ef")])
    file.append([b"gh"])
    assert file.size() == place.disk.size(file.path) == 8
    assert file.read(0, 100) == b"abcdefgh" == place.disk.read_all(file.path)
    assert file.read(3, 2) == b"de" and file.read(8, 5) == b"" and file.read(20, 1) == b""
    file.close()
    again = place.disk.open(place.path("log"))
    assert again.size() == 8 and again.read(6, 2) == b"gh"


@scenario
async def test_more_chunks_than_one_system_call_takes_are_one_append(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    chunks = [bytes([index % 256]) * 3 for index in range(2500)]
    file.append(chunks)
    assert file.read(0, 10_000) == b"".join(chunks)


@scenario
async def test_a_file_that_is_not_there_is_not_made_by_opening_it(place: Any) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("log"))
    with pytest.raises(FileNotFoundError):
        place.disk.open(place.path("no/such/folder"), create=True)
    with pytest.raises(FileNotFoundError):
        place.disk.read_all(place.path("log"))
    with pytest.raises(FileNotFoundError):
        place.disk.size(place.path("log"))
    with pytest.raises(FileNotFoundError):
        place.disk.remove(place.path("log"))
    assert not place.disk.exists(place.path("log"))


@scenario
async def test_a_cached_read_gives_all_or_says_that_it_would_block(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"0123456789" * 1000])
    found = file.read_cached(5, 100)
    assert found is None or found == file.read(5, 100)
    assert await place.disk.run(file.read, 9_990, 100) == b"0123456789"
    assert file.read_cached(9_990, 100) in (None, b"0123456789")
    assert file.read_cached(10_000, 100) == b"" == file.read_cached(20_000, 5)


@scenario
async def test_a_file_that_is_read_once_gives_what_it_holds(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"0123456789" * 1000])
    assert await place.disk.run_aside(file.read_once, 5, 10) == b"5678901234"
    assert file.read_once(9_995, 100) == b"56789"
    assert file.read_once(10_000, 5) == b"" == file.read_once(20_000, 5)
    assert file.read(0, 3) == b"012"


@scenario
async def test_a_cut_file_goes_on_from_where_it_was_cut(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"abcdef"])
    file.truncate(2)
    file.append([b"XY"])
    assert file.read(0, 10) == b"abXY" and file.size() == 4
    file.write_at(1, b"__")
    file.write_at(6, b"end")
    assert file.read(0, 10) == b"a__Y\0\0end" and file.size() == 9


@scenario
async def test_names_are_listed_in_order_and_a_missing_folder_is_empty(place: Any) -> None:
    for name in ("b", "a", "c"):
        place.disk.open(place.path(name), create=True).close()
    place.disk.make_folders(place.path("d/e/f"))
    place.disk.make_folders(place.path("d/e"))
    assert place.disk.list(place.folder) == ["a", "b", "c", "d"]
    assert place.disk.list(place.path("d/e")) == ["f"]
    assert place.disk.list(place.path("nothing")) == []


@scenario
async def test_a_rename_replaces_its_target_and_takes_folders_with_all_in_them(place: Any) -> None:
    place.disk.replace(place.path("new"), b"new")
    place.disk.replace(place.path("old"), b"old")
    place.disk.rename(place.path("new"), place.path("old"))
    assert place.disk.read_all(place.path("old")) == b"new"
    assert not place.disk.exists(place.path("new"))
    place.disk.make_folders(place.path("orders-0"))
    place.disk.replace(place.path("orders-0/log"), b"x")
    place.disk.rename(place.path("orders-0"), place.path("orders-0.delete"))
    assert place.disk.read_all(place.path("orders-0.delete/log")) == b"x"
    place.disk.remove_tree(place.path("orders-0.delete"))
    assert place.disk.list(place.folder) == ["old"]


@scenario
async def test_a_file_is_replaced_whole_and_leaves_no_temporary_one(place: Any) -> None:
    place.disk.replace(place.path("checkpoint"), b"long content")
    place.disk.replace(place.path("checkpoint"), memoryview(b"short"))
    assert place.disk.read_all(place.path("checkpoint")) == b"short"
    place.disk.place(place.path("checkpoint"), b"and then this")
    assert place.disk.read_all(place.path("checkpoint")) == b"and then this"
    assert place.disk.list(place.folder) == ["checkpoint"]


@scenario
async def test_a_lock_is_held_until_it_is_released(place: Any) -> None:
    release = place.disk.lock(place.path(".lock"))
    with pytest.raises(BlockingIOError):
        place.disk.lock(place.path(".lock"))
    release()
    place.disk.lock(place.path(".lock"))()


@scenario
async def test_many_files_are_synced_together(place: Any) -> None:
    files = [place.disk.open(place.path(f"log-{n}"), create=True) for n in range(20)]
    for file in files:
        file.append([b"x" * 100])
    await place.disk.sync([])
    await place.disk.sync([*files, *files])
    waiting = [asyncio.ensure_future(place.disk.sync(files)) for _ in range(3)]
    await asyncio.sleep(0)
    files[3].close()  # whoever closes a file does not hurt a sync that has begun
    await asyncio.gather(*waiting)


@scenario
async def test_a_closed_file_takes_and_gives_nothing(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"abc"])
    file.close()
    file.close()
    for use in (
        lambda: file.append([b"x"]),
        lambda: file.read(0, 1),
        lambda: file.read_cached(0, 1),
        lambda: file.truncate(0),
        lambda: file.write_at(0, b"x"),
        file.sync,
    ):
        with pytest.raises(OSError, match="closed"):
            use()
    with pytest.raises(OSError, match="closed"):
        await place.disk.sync([file])


@scenario
async def test_there_is_room_and_somebody_says_how_much(place: Any) -> None:
    assert 0 < place.disk.free_bytes(place.folder) <= place.disk.total_bytes(place.folder)


@scenario
async def test_a_removed_file_stays_readable_for_who_has_it_open(place: Any) -> None:
    file = place.disk.open(place.path("log"), create=True)
    file.append([b"abc"])
    place.disk.remove(file.path)
    assert file.read(0, 3) == b"abc"
    assert place.disk.list(place.folder) == []
    file.close()


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.binary(max_size=300), max_size=4)),
        st.tuples(st.just("truncate"), st.integers(0, 1500)),
        st.tuples(st.just("write_at"), st.integers(0, 1000), st.binary(max_size=200)),
        st.tuples(st.just("read"), st.integers(0, 1500), st.integers(0, 1500)),
    ),
    max_size=20,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
def test_a_file_is_the_bytes_that_its_changes_make(host: Any, changes: Any) -> None:
    async def run(place: Any) -> None:
        file = place.disk.open(place.path("log"), create=True)
        model = bytearray()
        for kind, *args in changes:
            if kind == "append":
                file.append(args[0])
                model += b"".join(args[0])
            elif kind == "truncate":
                file.truncate(args[0])
                model = model[: args[0]] + bytes(max(0, args[0] - len(model)))
            elif kind == "write_at":
                position, data = args
                file.write_at(position, data)
                if data:
                    model += bytes(max(0, position - len(model)))
                    model[position : position + len(data)] = data
            else:
                assert file.read(args[0], args[1]) == bytes(model[args[0] : args[0] + args[1]])
            assert file.size() == len(model)
        assert file.read(0, 10_000) == bytes(model)
        assert place.disk.size(file.path) == len(model)

    host.run(run)
