"""Which addresses count as public."""

import pytest

from domain.policy.addresses import public

PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450::1"]
PUBLIC += ["::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:0808:0808::1"]

PRIVATE = ["127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200"]
PRIVATE += ["168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.192"]
PRIVATE += ["192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"]
PRIVATE += ["224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"]
PRIVATE += ["::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1"]
PRIVATE += ["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "64:ff9b:1::808:808", "100::1", "2001::1"]
PRIVATE += ["2001:0:7f00:1::", "2001:db8::1", "2001:20::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:0a00:1::"]
PRIVATE += ["3fff::1", "4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1"]
PRIVATE += ["ff00::1", "ff02::1", "ff0e::1", "2a00::5efe:127.0.0.1", "2a00::200:5efe:10.0.0.1"]
PRIVATE += ["localhost", "", "127.1", "0x7f.1", "2130706433", "1.1.1.1%lo", "8.8.8.8 ", "::1%1"]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_recognised(address: str) -> None:
    assert public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_recognised(address: str) -> None:
    assert not public(address)
