"""TLS for the doors: one certificate for all of them, and a second address for each that offers it.

With `tls_client_ca` a client has to show a certificate that one of those authorities has signed.
"""

import ssl
from typing import Final

from fanlog.config import ConfigError, Settings

# A client that has not finished its handshake by then is cut off.
HANDSHAKE_SECONDS: Final = 10.0
SHUTDOWN_SECONDS: Final = 5.0


def server_context(settings: Settings) -> ssl.SSLContext | None:
    """What the doors' TLS addresses use; None without a certificate. Raises ConfigError."""
    if not settings.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
        if settings.tls_client_ca:
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except FileNotFoundError as error:
        raise ConfigError(
            "a file of tls_certificate, tls_key or tls_client_ca is not there: "
            f"{settings.tls_certificate}, {settings.tls_key}, {settings.tls_client_ca}"
        ) from error
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"the TLS certificate cannot be used: {error}") from error
    return context
