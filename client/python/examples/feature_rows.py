#!/usr/bin/python3
"""The feature rows of a model: a server keeps them, and each prediction gets the rows of its batch into one array.

    feature_rows.py URI load ROWS         stores rows 0 … ROWS - 1
    feature_rows.py URI predict ID...     the scores of these rows; a row that is absent counts as zeros
"""

import sys

import numpy

import osprey

WIDTH = 64
ROW_BYTES = WIDTH * 4
CHUNK = 1000


def key_of(row):
    return f"row:{row}"


def load(client, count):
    for first in range(0, count, CHUNK):
        rows = range(first, min(first + CHUNK, count))
        features = numpy.array(rows, "f4")[:, None] + numpy.arange(WIDTH, dtype="f4") / WIDTH
        results = client.put_many({key_of(row): features[row - first].tobytes() for row in rows})
        for result in results:
            if isinstance(result, osprey.Error):
                raise result
    print(f"rows={count}")


def gather(client, rows):
    """The features of `rows`, one below the other: each READ lands in its place of the array."""
    features = client.allocate_array((len(rows), WIDTH), "f4")
    places = memoryview(features).cast("B")
    wanted = [(key_of(row), places[at * ROW_BYTES:(at + 1) * ROW_BYTES]) for at, row in enumerate(rows)]
    for at, result in enumerate(client.get_many_into(wanted)):
        if isinstance(result, osprey.Error):
            raise result
        if result is None:
            features[at] = 0
    return features


def predict(client, rows):
    weights = numpy.full(WIDTH, 1 / WIDTH, "f4")
    for row, score in zip(rows, gather(client, rows) @ weights):
        print(f"row={row} score={score:.3f}")


def main():
    if len(sys.argv) < 4 or sys.argv[2] not in ("load", "predict") or not all(word.isdecimal() for word in sys.argv[3:]):
        sys.exit(__doc__)
    numbers = [int(word) for word in sys.argv[3:]]
    with osprey.Client(sys.argv[1]) as client:
        if sys.argv[2] == "load":
            load(client, numbers[0])
        else:
            predict(client, numbers)


if __name__ == "__main__":
    main()
