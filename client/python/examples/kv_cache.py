#!/usr/bin/python3
"""A cache of attention's keys and values, which inference servers share: what one has computed for the beginning of a prompt, others
take from an Osprey server without a copy.

    kv_cache.py URI "the prompt"

A prompt is cut into blocks of tokens. A block's key is a hash of all tokens up to its end, so that equal beginnings have equal keys.
Words stand for tokens, and a formula for the model.
"""

import hashlib
import sys

import numpy

import osprey

BLOCK_TOKENS = 4
SHAPE = (2, 8, BLOCK_TOKENS, 16)  # keys and values, layers, tokens, the width of a head
TTL_S = 600


def blocks_of(tokens):
    """(key, tokens of the block) for each whole block."""
    digest = hashlib.sha256()
    for first in range(0, len(tokens) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        block = tokens[first:first + BLOCK_TOKENS]
        digest.update("\0".join(block).encode() + b"\0")
        yield "kv:" + digest.hexdigest(), block


def compute(block, out):
    """What a model would do, for a long time."""
    for position, token in enumerate(block):
        seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:4], "little")
        out[:, :, position, :] = numpy.random.default_rng(seed).random(SHAPE[:2] + SHAPE[3:], dtype="f4")


class KvCache:
    """Fills `pool`, one block after the other; a block that the server has is READ into its place."""

    def __init__(self, client, blocks_max):
        self._client = client
        self.pool = client.allocate_array((blocks_max, *SHAPE), "f4")

    def fill(self, tokens):
        """Returns how many blocks were found, and how many were computed. The found ones are a beginning of the prompt."""
        blocks = list(blocks_of(tokens))[:len(self.pool)]
        places = [memoryview(self.pool[number]).cast("B") for number in range(len(blocks))]
        results = self._client.get_many_into([(key, place) for (key, _), place in zip(blocks, places)])
        found = 0
        while found < len(blocks) and results[found] is not None and not isinstance(results[found], osprey.Error):
            found += 1
        for number in range(found, len(blocks)):
            compute(blocks[number][1], self.pool[number])
        # What cannot be stored, as the server is full, will be computed again.
        self._client.put_many_from([(blocks[number][0], places[number]) for number in range(found, len(blocks))], ttl=TTL_S)
        return found, len(blocks) - found


def main():
    if len(sys.argv) != 3:
        sys.exit('usage: kv_cache.py URI "the prompt"')
    tokens = sys.argv[2].split()
    with osprey.Client(sys.argv[1]) as client:
        cache = KvCache(client, blocks_max=256)
        found, computed = cache.fill(tokens)
        print(f"blocks found={found} computed={computed} sum={cache.pool[:found + computed].sum():.3f}")


if __name__ == "__main__":
    main()
