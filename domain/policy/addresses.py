"""The internet addresses to which our processes may connect: only public ones, according to our own list.

`ipaddress.is_global` is not used: it calls some metadata, NAT64, 6to4 and multicast addresses global.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_DENIED_4 = [
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier NAT; a cloud's metadata address lies in it
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's host agent
        "169.254.0.0/16",  # link local; the usual metadata address
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; another metadata address
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
_PUBLIC_6 = IPv6Network("2000::/3")  # everything else is local, mapped, multicast or unassigned
_DENIED_6 = [
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo
        "2001:db8::/32",
        "2620:4f:8000::/48",
        "3fff::/20",  # documentation
    )
]
_6TO4 = IPv6Network("2002::/16")
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)


def public(address: str) -> bool:
    """Whether we may connect to this address; False if it is not an address at all."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return _public_4(parsed)
    inner = _find_embedded(parsed)
    if inner is not None and not _public_4(inner):
        return False
    if parsed.ipv4_mapped is not None or parsed in _NAT64:
        return True  # the IPv4 address inside, checked above, is all that matters
    return parsed.scope_id is None and parsed in _PUBLIC_6 and not any(parsed in net for net in _DENIED_6)


def _public_4(address: IPv4Address) -> bool:
    return not any(address in net for net in _DENIED_4)


def _find_embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a gateway would reach through this IPv6 address."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _6TO4:
        return IPv4Address(int(address) >> 80 & 0xFFFFFFFF)
    if address in _NAT64 or int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
