"""Other people's brokers, run beside Fanlog on the same machine, with the same clients, in the same run."""


class NotAvailable(Exception):
    """Why a broker cannot be measured on this machine."""
