"""`verbena devices`."""

import json

from verbena import verbs


def test_every_provider_is_named(verbena):
    """Available or not, each provider has its line."""
    out = verbena("devices").stdout
    for provider in verbs.providers():
        assert provider.name in out


def test_json_tells_the_same_as_the_api(verbena):
    """The document parses and holds every provider, device, port and GID."""
    document = json.loads(verbena("devices", "--json").stdout)
    told = {provider["name"]: provider for provider in document["providers"]}
    for provider in verbs.providers():
        assert told[provider.name]["available"] == provider.available
        assert [device["name"] for device in told[provider.name]["devices"]] == [
            device.name for device in provider.devices
        ]


def test_an_available_device_shows_its_port_and_gid(verbena):
    """Shared memory works everywhere: its port is active."""
    out = verbena("devices").stdout
    assert "port 1" in out
    assert "ACTIVE" in out
    assert "GID" in out


def test_verbose_adds_limits_and_capabilities(verbena):
    """-v shows what the short form leaves out."""
    brief, long = verbena("devices").stdout, verbena("devices", "-v").stdout
    assert "queue pairs" not in brief
    assert "queue pairs" in long


def test_an_absent_provider_says_why(verbena):
    """What cannot be used carries its reason."""
    out = " ".join(verbena("devices").stdout.split())
    for provider in verbs.providers():
        if not provider.available:
            assert " ".join(provider.reason.split()) in out
