"""Random data for jobs in which only time matters."""


def npy(path, shape, numbers):
    """A byte array in version 1.0 of NumPy's format."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + numbers)
