"""Client-side caching: CLIENT TRACKING, CACHING, TRACKINGINFO, GETREDIR."""

from __future__ import annotations

from itertools import combinations

from verbena.kv.commands.arguments import display, integer
from verbena.kv.commands.declare import command
from verbena.kv.commands.replies import CommandError, InvalidSyntax, Reply
from verbena.kv.commands.server.client import OWN, on_or_off
from verbena.kv.server.call import Call
from verbena.kv.server.tracking import TrackingOptions

FLAGS = {b"BCAST": "broadcasts", b"OPTIN": "opt_in", b"OPTOUT": "opt_out", b"NOLOOP": "skips_own"}
SWITCH = "before disabling tracking for this client, and then re-enabling it with a different mode."


@command(
    "CLIENT TRACKING",
    arity=-3,
    flags=OWN,
    group="connection",
    summary="Turns invalidation messages for client-side caching on or off.",
    since="6.0.0",
)
def tracking(call: Call, switch: bytes, *args: bytes) -> Reply:
    options, prefixes = _read(call, args)
    if not on_or_off(switch):
        call.server.clients.tracking.stop(call.client)
        call.client.update_dispatch()
        return "OK"
    before = call.client.tracking
    if prefixes and not options.broadcasts:
        raise CommandError("ERR PREFIX option requires BCAST mode to be enabled")
    if before is not None and before.broadcasts != options.broadcasts:
        raise CommandError(f"ERR You can't switch BCAST mode on/off {SWITCH}")
    if options.broadcasts and (options.opt_in or options.opt_out):
        raise CommandError("ERR OPTIN and OPTOUT are not compatible with BCAST")
    if options.opt_in and options.opt_out:
        raise CommandError("ERR You can't specify both OPTIN mode and OPTOUT mode")
    if before is not None and ((options.opt_in and before.opt_out) or (options.opt_out and before.opt_in)):
        raise CommandError(f"ERR You can't switch OPTIN/OPTOUT mode {SWITCH}")
    if options.broadcasts:
        _check_overlap(prefixes, before.prefixes if before is not None else set())
        prefixes = prefixes or [b""]
    call.server.clients.tracking.start(call.client, options, prefixes)
    return "OK"


def _read(call: Call, args: tuple[bytes, ...]) -> tuple[TrackingOptions, list[bytes]]:
    options, prefixes = TrackingOptions(), []
    rest = list(args)
    while rest:
        name = rest.pop(0).upper()
        if name == b"REDIRECT" and rest:
            if options.redirect:
                raise CommandError("ERR A client can only redirect to a single other client")
            options.redirect = integer(rest.pop(0))
            if options.redirect <= 0 or not call.server.engine.client(options.redirect).here:
                raise CommandError("ERR The client ID you want redirect to does not exist")
        elif name == b"PREFIX" and rest:
            prefixes.append(rest.pop(0))
        elif name in FLAGS:
            setattr(options, FLAGS[name], True)
        else:
            raise InvalidSyntax()
    return options, prefixes


def _check_overlap(prefixes: list[bytes], there: set[bytes]) -> None:
    """Raises CommandError if prefixes overlap: a change would then be reported twice."""
    pairs = [(one, other, "an existing prefix") for one in prefixes for other in sorted(there)]
    pairs += [(one, other, "another provided prefix") for one, other in combinations(prefixes, 2)]
    for one, other, which in pairs:
        if one.startswith(other) or other.startswith(one):
            raise CommandError(
                f"ERR Prefix '{display(one)}' overlaps with {which} '{display(other)}'. "
                "Prefixes for a single client must not overlap."
            )


@command(
    "CLIENT CACHING",
    arity=3,
    flags=OWN,
    group="connection",
    summary="Includes or excludes the keys of the next command from tracking.",
    since="6.0.0",
)
def caching(call: Call, answer: bytes) -> Reply:
    options = call.client.tracking
    if options is None:
        raise CommandError(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT "
            "mode enabled"
        )
    arg = answer.upper()
    if arg == b"YES" and not options.opt_in:
        raise CommandError("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.")
    if arg == b"NO" and not options.opt_out:
        raise CommandError("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.")
    if arg not in (b"YES", b"NO"):
        raise InvalidSyntax()
    options.caching = True
    return "OK"


@command(
    "CLIENT TRACKINGINFO",
    arity=2,
    flags=OWN,
    group="connection",
    summary="Returns the connection's settings of client-side caching.",
    since="6.2.0",
)
def trackinginfo(call: Call) -> Reply:
    options = call.client.tracking or TrackingOptions(redirect=-1)
    found = {
        b"on": call.client.tracking is not None,
        b"off": call.client.tracking is None,
        b"bcast": options.broadcasts,
        b"optin": options.opt_in,
        b"caching-yes": options.opt_in and options.caching,
        b"optout": options.opt_out,
        b"caching-no": options.opt_out and options.caching,
        b"noloop": options.skips_own,
        b"broken_redirect": options.broken,
    }
    flags = [name for name, there in found.items() if there]
    return {
        b"flags": flags if call.client.native.version == 2 else frozenset(flags),
        b"redirect": options.redirect,
        b"prefixes": sorted(options.prefixes),
    }


@command(
    "CLIENT GETREDIR",
    arity=2,
    flags=OWN,
    group="connection",
    summary="Returns the client that receives the connection's invalidation messages.",
    since="6.0.0",
)
def getredir(call: Call) -> Reply:
    return call.client.tracking.redirect if call.client.tracking is not None else -1
