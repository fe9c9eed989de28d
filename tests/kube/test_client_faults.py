"""What servers and what stands before them can answer, and what becomes of it at the seam."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from prefillgate.kube.client import Kube
from prefillgate.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    NotJson,
    ServerError,
    Terminal,
    Throttled,
    Transient,
    Unauthorized,
    Unreachable,
    from_status,
)
from prefillgate.kube.objects import CONFIG_MAPS, PODS, Query, Ref, name_of
from prefillgate.kube.transport import CallMade
from tests.support.fake_api import FakeApi, Fault
from tests.support.gadgets import GADGETS, gadget
from tests.support.manual_clock import until

ONE = Ref(GADGETS, "one", "default")
ALL = Query(GADGETS, "default")


@pytest.mark.parametrize(
    ("code", "reason", "kind", "passes"),
    [
        (401, "Unauthorized", Unauthorized, False),
        (403, "Forbidden", Forbidden, False),
        (404, "NotFound", NotFound, False),
        (409, "Conflict", Conflict, False),
        (409, "AlreadyExists", AlreadyExists, False),
        (410, "Expired", Gone, False),
        (422, "Invalid", Invalid, False),
        (400, "BadRequest", Invalid, False),
        (413, "RequestEntityTooLarge", Invalid, False),
        (429, "TooManyRequests", Throttled, True),
        (500, "InternalError", ServerError, True),
        (503, "ServiceUnavailable", ServerError, True),
        (504, "Timeout", ServerError, True),
    ],
)
async def test_each_refusal_of_the_server_has_its_class(
    fake: FakeApi, kube: Kube, code: int, reason: str, kind: type[KubeError], passes: bool
) -> None:
    fake.fail(Fault("status", code=code, reason=reason, message="as it said"))
    with pytest.raises(KubeError, match="as it said") as caught:
        await kube.get(ONE)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert isinstance(caught.value, Transient if passes else Terminal)


async def test_how_long_to_wait_is_taken_from_the_server(fake: FakeApi, kube: Kube) -> None:
    fake.fail(Fault("status", code=429, reason="TooManyRequests", retry_after=7))
    with pytest.raises(Throttled) as caught:
        await kube.get(ONE)
    assert caught.value.retry_after_seconds == 7.0
    fake.fail(Fault("status", code=503, reason="ServiceUnavailable"))
    with pytest.raises(ServerError) as other:
        await kube.get(ONE)
    assert other.value.retry_after_seconds is None
    fake.fail(Fault("status", code=429, reason="TooManyRequests", retry_after=99_999_999))
    with pytest.raises(Throttled) as longest:
        await kube.get(ONE)
    assert longest.value.retry_after_seconds == 300.0


@pytest.mark.parametrize(
    ("header", "told", "seconds"),
    [
        (None, None, None),
        ("0", None, 0.0),
        ("12", 5, 12.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 5, 5.0),
        ("-1", None, None),
        ("1e9", None, None),
        ("٣", None, None),
        (None, True, None),
        (None, 0, None),
        (None, "7", None),
        (None, 10**30, 300.0),
    ],
)
def test_only_a_plain_number_of_seconds_is_a_time_to_wait(
    header: str | None, told: object, seconds: float | None
) -> None:
    status = {"kind": "Status", "code": 429, "details": {"retryAfterSeconds": told}}
    assert from_status("GET /x", status, header).retry_after_seconds == seconds


@pytest.mark.parametrize("code", [200, 302, 400, 403, 404, 409, 410])
async def test_the_page_of_a_proxy_is_never_the_word_of_the_server(fake: FakeApi, kube: Kube, code: int) -> None:
    await kube.create(GADGETS, gadget("one", "default"))
    for ask in (kube.get(ONE), kube.find(ONE), kube.list(ALL), kube.delete(ONE), kube.version()):
        fake.fail(Fault("html", code=code))
        with pytest.raises(NotJson, match="proxy"):
            await ask
    assert await kube.find(ONE) is not None


@pytest.mark.parametrize(
    ("code", "kind"), [(401, Unauthorized), (429, Throttled), (502, ServerError), (503, ServerError)]
)
async def test_the_page_of_a_proxy_that_says_it_is_busy_is_transient_or_about_credentials(
    fake: FakeApi, kube: Kube, code: int, kind: type[KubeError]
) -> None:
    fake.fail(Fault("html", code=code, retry_after=3))
    with pytest.raises(kind) as caught:
        await kube.get(ONE)
    assert "html" not in str(caught.value) and caught.value.retry_after_seconds == 3.0


@pytest.mark.parametrize(
    "body", ["", "null", "[]", '"x"', "{}", '{"kind":"Gadget"}', '{"metadata":{}}', '{"a":', "\x00", "{" * 100_000]
)
async def test_json_of_something_else_is_no_object(fake: FakeApi, kube: Kube, body: str) -> None:
    for ask in (kube.get(ONE), kube.list(ALL), kube.create(GADGETS, gadget("one", "default"))):
        fake.fail(Fault("text", code=200, body=body))
        with pytest.raises(NotJson):
            await ask


async def test_a_list_without_items_is_no_empty_list(fake: FakeApi, kube: Kube) -> None:
    fake.fail(Fault("text", code=200, body='{"kind":"GadgetList","metadata":{"resourceVersion":"1"}}'))
    with pytest.raises(NotJson):
        await kube.list(ALL)
    fake.fail(Fault("text", code=200, body='{"kind":"GadgetList","metadata":{"resourceVersion":"1"},"items":null}'))
    assert (await kube.list(ALL)).items == []


async def test_a_server_that_hangs_is_left(fake: FakeApi, hasty: Kube) -> None:
    for ask in (hasty.get(ONE), hasty.list(ALL), hasty.apply(GADGETS, gadget("one", "default")), hasty.version()):
        fake.fail(Fault("hang"))
        with pytest.raises(Unreachable, match="no answer in time"):
            await ask


async def test_a_watch_that_falls_silent_is_left(fake: FakeApi, hasty: Kube) -> None:
    with pytest.raises(Unreachable, match="no answer in time"):
        async for _ in hasty.watch(ALL, "100", 300):
            pass


@pytest.mark.parametrize("what", ["reset", "truncate"])
async def test_a_connection_that_breaks_is_unreachable_with_the_original_chained(
    fake: FakeApi, kube: Kube, what: str
) -> None:
    await kube.create(GADGETS, gadget("one", "default"))
    fake.fail(Fault(what, times=2))  # a connection that was kept is given up once without a word
    with pytest.raises(Unreachable) as caught:
        await kube.get(ONE)
    assert isinstance(caught.value.__cause__, aiohttp.ClientError | OSError)
    assert caught.value.code is None


async def test_nobody_listening_is_unreachable_and_names_the_server(fake: FakeApi, kube: Kube) -> None:
    await fake.stop()
    with pytest.raises(Unreachable, match=rf"GET /version at http://127\.0\.0\.1:{fake.port}: "):
        await kube.version()


async def test_an_answer_in_small_pieces_is_read_whole(fake: FakeApi, kube: Kube) -> None:
    for number in range(3):
        await kube.create(GADGETS, gadget(f"g{number}", "default"))
    fake.fail(Fault("slow"))
    assert [name_of(each) for each in (await kube.list(ALL)).items] == ["g0", "g1", "g2"]


async def test_nothing_is_retried_below_the_caller(fake: FakeApi, kube: Kube) -> None:
    for what in ("reset", "truncate", "html"):
        fake.calls.clear()
        fake.fail(Fault(what, code=502))
        with pytest.raises(Transient):
            await kube.create(CONFIG_MAPS, {"metadata": {"name": "one", "namespace": "default"}})
        assert fake.count("create") == 1


async def test_a_write_whose_answer_is_lost_is_found_by_the_next(fake: FakeApi, kube: Kube) -> None:
    fake.fail(Fault("reset", applied=True))
    with pytest.raises(Unreachable):
        await kube.create(GADGETS, gadget("one", "default"))
    with pytest.raises(AlreadyExists):
        await kube.create(GADGETS, gadget("one", "default"))


async def test_a_continue_token_that_grew_old_is_answered_by_one_whole_list(fake: FakeApi, kube: Kube) -> None:
    for number in range(5):
        await kube.create(GADGETS, gadget(f"g{number}", "default"))
    listing = asyncio.ensure_future(kube.list(ALL, page=2))
    await until(lambda: fake.count("list"))
    fake.expire()
    found = await listing
    assert [name_of(each) for each in found.items] == [f"g{number}" for number in range(5)]


async def test_a_list_that_expires_every_time_says_so(fake: FakeApi, kube: Kube) -> None:
    fake.fail(Fault("status", "list", code=410, reason="Expired", times=2))
    with pytest.raises(Gone):
        await kube.list(ALL)
    assert fake.count("list") == 2


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("<html>\n<body>", NotJson),
        ("[]\n", NotJson),
        ('{"type":"ADDED"}\n', NotJson),
        ('{"type":"ADDED","object":{"metadata":{}}}\n', NotJson),
        ('{"type":"STRANGE","object":{"metadata":{"resourceVersion":"5"}}}\n', NotJson),
        ('{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"old"}}\n', Gone),
        ('{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}\n', ServerError),
        ('{"type":"ERROR","object":{}}\n', ServerError),
        ('{"type":"ADDED","object":{"metadata":{"resourceVersion":"5"}}', Unreachable),
    ],
)
async def test_a_watch_that_gives_something_else_ends_with_its_error(
    fake: FakeApi, kube: Kube, line: str, kind: type[KubeError]
) -> None:
    fake.fail(Fault("text", "watch", code=200, body=line))
    with pytest.raises(kind):
        async for _ in kube.watch(ALL, "100", 300):
            pass


async def test_a_watch_that_is_cut_is_unreachable(fake: FakeApi, kube: Kube) -> None:
    fake.fail(Fault("truncate", "watch"))
    with pytest.raises(Unreachable):
        async for _ in kube.watch(ALL, "100", 300):
            pass


async def test_bookmarks_come_through(fake: FakeApi, kube: Kube) -> None:
    watch = kube.watch(ALL, str(fake.store.version), 300)
    first = asyncio.ensure_future(anext(watch))
    await until(lambda: fake.store.watchers)
    await kube.create(CONFIG_MAPS, {"metadata": {"name": "other", "namespace": "default"}})
    fake.bookmark()
    change = await first
    assert (change.type, change.object["metadata"]["resourceVersion"]) == ("BOOKMARK", str(fake.store.version))
    await watch.aclose()


async def test_a_text_of_the_server_cannot_move_the_terminal_or_fill_it(fake: FakeApi, kube: Kube) -> None:
    fake.fail(Fault("status", code=403, reason="Forbidden", message="\x1b[2J\u202e" + "x" * 10_000))
    with pytest.raises(Forbidden) as caught:
        await kube.get(ONE)
    assert str(caught.value).isprintable() and len(str(caught.value)) <= 500


async def test_every_call_is_told_with_its_outcome(fake: FakeApi, kube: Kube, made: list[CallMade]) -> None:
    await kube.create(GADGETS, gadget("one", "default"))
    with pytest.raises(NotFound):
        await kube.get(Ref(PODS, "none", "default"))
    fake.fail(Fault("reset", times=2))
    with pytest.raises(Unreachable):
        await kube.list(ALL)
    fake.fail(Fault("close", "watch"))
    assert [each async for each in kube.watch(ALL, "100", 300)] == []
    told = [(call.verb, call.plural, call.outcome, call.code) for call in made]
    assert told == [
        ("create", "gadgets", "Ok", None),
        ("get", "pods", "NotFound", 404),
        ("list", "gadgets", "Unreachable", None),
        ("watch", "gadgets", "Ok", None),
    ]
    assert all(call.seconds >= 0 for call in made)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_is_a_path_reaches_no_server(name: str) -> None:
    with pytest.raises(ValueError, match="Gadget"):
        Ref(GADGETS, name, "default").path()


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    path = Ref(GADGETS, "../../secrets/x?y#z", "default").path()
    assert path == "/apis/test.prefillgate.io/v1/namespaces/default/gadgets/..%2F..%2Fsecrets%2Fx%3Fy%23z"
