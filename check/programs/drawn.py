import numpy


def drawn(dtype, n, seed, simple, low, high):
    """Many elements, as the checker draws them: SplitMix64, or 1, 2, 3, 4 again and again."""
    i, whole = numpy.arange(n, dtype=numpy.uint64), numpy.dtype(dtype).kind in "iub"
    if simple:
        return numpy.full(n, 0 if low <= 0 <= high else low) if whole else (i % 4 + 1) / (1 if high >= 4 else 4) if low <= 1 <= high else numpy.full(n, low)
    z = numpy.uint64(seed) + (i + numpy.uint64(2)) * numpy.uint64(0x9e3779b97f4a7c15)
    z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xbf58476d1ce4e5b9)
    z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94d049bb133111eb)
    z ^= z >> numpy.uint64(31)
    return int(low) + (z % numpy.uint64(high - low + 1)).astype("int64") if whole else low + (high - low) * ((z >> numpy.uint64(11)) * 2.0**-53)
