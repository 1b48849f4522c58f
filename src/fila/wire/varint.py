"""Numbers as protobuf writes them, for what is laid together or counted without its generated code."""


def varint(number: int) -> bytes:
    """Return the encoding of a number that is not negative."""
    if number < 0x80:
        return bytes((number,))
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_varint(frame: bytes, position: int) -> tuple[int, int]:
    """Return a number that stands in a frame, and where it ends. Raises IndexError where the frame ends before."""
    number = shift = 0
    while True:
        byte = frame[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return number, position
        shift += 7
