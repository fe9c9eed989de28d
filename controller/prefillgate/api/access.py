"""How a server is reached: names of files and variables, never a secret itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Access:
    """Everything a connection needs beside its URL. None: not asked for."""

    api_key_variable: str | None = None  # the environment variable that holds the key
    header_file: Path | None = None  # one `Name: value` a line
    ca_file: Path | None = None  # PEM; trusted instead of the system's certificates
    client_cert: Path | None = None  # PEM, may hold the key too
    client_key: Path | None = None
    tls_server_name: str | None = None  # the name that the certificate must bear, and SNI
    insecure: bool = False  # the certificate is not checked: said in the verdict
    proxy: str | None = None  # http://HOST:PORT; the environment's proxies are never used
