"""Lists providers and devices, and opens a device."""

from __future__ import annotations

from dataclasses import dataclass

from verbena import _native, errors
from verbena.verbs.attributes import DeviceAttributes
from verbena.verbs.context import Context
from verbena.verbs.ibv import IbvOptions
from verbena.verbs.iwarp import IwarpOptions
from verbena.verbs.quic import QuicOptions

Options = IbvOptions | IwarpOptions | QuicOptions
_OPTIONS: dict[str, type[Options]] = {"ibv": IbvOptions, "iwarp": IwarpOptions, "quic": QuicOptions}


@dataclass(frozen=True)
class Device:
    """A device of an available provider."""

    name: str
    provider: str
    attributes: DeviceAttributes

    def open(self, *, options: Options | None = None) -> Context:
        """Opens the device. Errors as for open_device()."""
        return open_device(f"{self.provider}:{self.name}", options=options)


@dataclass(frozen=True)
class ProviderInfo:
    """A provider of this build: whether it is available on this machine, otherwise the reason, and its
    devices."""

    name: str
    available: bool
    reason: str
    devices: list[Device]


def providers() -> list[ProviderInfo]:
    """Returns every provider of this build, in its order."""
    return [_info(name) for name in _native.provider_names()]


def devices() -> list[Device]:
    """Returns every device of every available provider."""
    return [device for info in providers() for device in info.devices]


def open_device(name: str, *, options: Options | None = None) -> Context:
    """Opens "provider" (its first device) or "provider:device". UnavailableError, with the reason, if it does
    not exist or cannot be used on this machine; StateError if the options are of another provider or not
    valid."""
    provider, _, device = name.partition(":")
    native = find_provider(provider)
    if options is None:
        return Context(native.open(device))
    if _OPTIONS.get(provider) is not type(options):
        detail = f"{type(options).__name__} are not for the provider {provider!r}"
        raise errors.setup_error("invalid_argument", operation="open_device", detail=detail)
    if isinstance(options, IbvOptions):
        gid_index = -1 if options.gid_index is None else options.gid_index
        return Context(_native.open_ibv(device, port=options.port or 0, gid_index=gid_index))
    if isinstance(options, QuicOptions):
        return Context(_native.open_quic(device, options.to_native()))
    return Context(_native.open_iwarp(device, options.to_native()))


def find_provider(name: str) -> _native.Provider:
    """Returns the native provider. UnavailableError if it does not exist or cannot be used on this
    machine."""
    known = _native.provider_names()
    if name not in known:
        detail = f"there is no provider {name!r}; this build has {', '.join(known)}"
        raise errors.setup_error("provider_missing", operation="open_device", detail=detail)
    provider = _native.find_provider(name)
    if provider.unavailable_reason:
        raise errors.setup_error(
            provider.unavailable_code,
            operation="open_device",
            detail=f"{name}: {provider.unavailable_reason}",
        )
    return provider


def _info(name: str) -> ProviderInfo:
    provider = _native.find_provider(name)
    reason = provider.unavailable_reason
    found = [] if reason else [DeviceAttributes.from_native(native) for native in provider.devices()]
    return ProviderInfo(
        name,
        available=not reason,
        reason=reason,
        devices=[Device(attributes.name, name, attributes) for attributes in found],
    )
