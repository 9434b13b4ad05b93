"""Certificates for tests: an authority, and what it has signed for 127.0.0.1 and for a client."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificate:
    certificate: str
    key: str


class Authority:
    """Made with the openssl command, which every machine that runs these tests has."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.certificate = str(directory / "ca.pem")
        self._key = str(directory / "ca.key")
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate),
            *("-days", "1", "-subj", "/CN=test authority"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
        )

    def sign(self, name: str) -> Certificate:
        request, key, signed = (str(self.directory / f"{name}.{end}") for end in ("csr", "key", "pem"))
        _openssl("req", "-new", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(
            "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n"
            "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
        )
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-days", "1"),
            *("-CAcreateserial", "-extfile", str(extensions), "-out", signed),
        )
        return Certificate(signed, key)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=30)
