"""What the Python clients share."""


def check(what: str, holds: bool, seen: object = "") -> None:
    """Print one line for what holds, and end with the first that does not."""
    if not holds:
        raise SystemExit(f"NOT ok: {what}\n{seen}")
    print(f"ok  {what}", flush=True)
