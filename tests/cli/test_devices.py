"""`verbena devices`."""

import json

from verbena import verbs


def test_every_provider_is_listed(verbena):
    """Each provider has a line, whether it is available or not."""
    out = verbena("devices").stdout
    for provider in verbs.providers():
        assert provider.name in out


def test_json_equals_the_api(verbena):
    """The document contains every provider, device, port and GID."""
    document = json.loads(verbena("devices", "--json").stdout)
    told = {provider["name"]: provider for provider in document["providers"]}
    for provider in verbs.providers():
        assert told[provider.name]["available"] == provider.available
        assert [device["name"] for device in told[provider.name]["devices"]] == [
            device.name for device in provider.devices
        ]


def test_an_available_device_shows_its_port_and_gid(verbena):
    """The port of shared memory is active on every machine."""
    out = verbena("devices").stdout
    assert "port 1" in out
    assert "ACTIVE" in out
    assert "GID" in out


def test_verbose_adds_limits_and_capabilities(verbena):
    """-v prints limits and capabilities; the short form does not."""
    brief, long = verbena("devices").stdout, verbena("devices", "-v").stdout
    assert "queue pairs" not in brief
    assert "queue pairs" in long


def test_an_absent_provider_has_a_reason(verbena):
    """A provider that cannot be used is listed with its reason."""
    out = " ".join(verbena("devices").stdout.split())
    for provider in verbs.providers():
        if not provider.available:
            assert " ".join(provider.reason.split()) in out
