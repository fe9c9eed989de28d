"""A cell's request as a curl command for a POSIX shell."""

from __future__ import annotations

from dataclasses import dataclass

from prefillgate.core.journal import CellMeasured
from prefillgate.replay.kept_request import KeptRequest
from prefillgate.report.clean import is_clean, one_line

KEY_VARIABLE = "PREFILLGATE_API_KEY"


@dataclass(frozen=True, slots=True)
class Asked:
    """A cell, what it sent, and the root of the server it was sent to."""

    cell: CellMeasured
    request: KeptRequest
    root: str


def curl_command(asked: Asked, key_variable: str = KEY_VARIABLE) -> str:
    """The command, comments above it, a newline at its end.

    The body is one line, since JSON escapes every line end: curl's `--data` takes the one that a here-document adds
    off again. A body with characters that are not printed goes through printf in escapes, so that the command shows
    what it does. The key goes to curl through a file descriptor: no process list shows it.
    """
    url = one_line(asked.root + asked.request.path)
    words = "curl -q -sS -N --http1.1 --noproxy '*' -H 'Content-Type: application/json' -H 'Expect:'"
    ask = f"{words} \\\n  --config /dev/fd/3 --data{{how}} @- {_quoted(url)} 3<<KEY"
    key = f"${{{key_variable}:+oauth2-bearer = ${key_variable}}}\nKEY\n"
    body = asked.request.body.decode()
    if is_clean(body) and "\n" not in body:
        command = f"{ask.format(how='')} <<'BODY'\n{key}{body}\nBODY\n"
    else:
        command = f"printf '%b' '{_escaped(body)}' |\n{ask.format(how='-binary')}\n{key}"
    return "".join(f"# {line}\n" for line in _comments(asked, key_variable)) + command


def _comments(asked: Asked, key_variable: str) -> list[str]:
    cell = asked.cell.cell
    lines = [
        one_line(f"cell {asked.cell.cell_id}: {cell.arm}, {cell.case_id}"),
        f"The key is read from {key_variable}; while that is not set, none is sent.",
        "A run's --header-file and --proxy are not in its store: if it had them, add --header @FILE, or --proxy URL in "
        "place of --noproxy.",
    ]
    if asked.root.startswith("https:"):
        lines.append(
            "Nor is its TLS: --ca-file is curl's --cacert, --client-cert --cert, --client-key --key, --insecure the "
            "same, --tls-server-name NAME --connect-to NAME:PORT:HOST:PORT with NAME in the address."
        )
    if not asked.request.as_sent:
        lines.append("This store kept the body's fields in sorted order, not in the order they were sent in.")
    return lines


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _escaped(text: str) -> str:
    """`text` for printf's %b within single quotes; what is not printed stands as the octal escapes of its bytes."""
    return "".join(map(_escape, text))


def _escape(char: str) -> str:
    if char == "\\":
        return "\\\\"
    return char if is_clean(char) and char != "'" else "".join(f"\\0{byte:03o}" for byte in char.encode())
