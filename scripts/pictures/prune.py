"""Two profiles made small enough for a picture: of one thread, without what is narrow in both, and the kernel by its first function alone. What
a pruned function took stays with its caller.

    prune.py THREAD BEFORE AFTER FOLDER    folded texts; writes FOLDER/before.folded and FOLDER/after.folded"""

import collections
import os
import sys

LEAST = 0.004  # of all samples of the thread


def stacks(path, thread):
    """[(frames, samples)] of the thread."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            stack, _, samples = line.rstrip("\n").rpartition(" ")
            frames = tuple(stack.split(";"))
            if frames[0] == thread:
                kernel = next((depth for depth, frame in enumerate(frames) if frame.endswith(" [kernel]")), len(frames))
                yield frames[:kernel + 1], int(samples)


def totals(found):
    """Samples of each function of the tree, by the path to it."""
    counted = collections.Counter()
    for frames, samples in found:
        for depth in range(1, len(frames) + 1):
            counted[frames[:depth]] += samples
    return counted


def wide(profiles):
    """Paths that are wide in one of the profiles at least."""
    kept = set()
    for found in profiles:
        counted = totals(found)
        limit = LEAST * max(counted.values())
        kept |= {path for path, samples in counted.items() if samples >= limit}
    return kept


def pruned(found, kept):
    """A path is at most as wide as the one that it is part of, so the first that is not kept ends a stack."""
    result = collections.Counter()
    for frames, samples in found:
        while frames not in kept:
            frames = frames[:-1]
        result[frames] += samples
    return result


def main(thread, before, after, folder):
    profiles = [list(stacks(path, thread)) for path in (before, after)]
    kept = wide(profiles)
    for found, name in zip(profiles, ("before", "after")):
        with open(os.path.join(folder, f"{name}.folded"), "w", encoding="utf-8") as file:
            file.writelines(f"{';'.join(frames)} {samples}\n" for frames, samples in sorted(pruned(found, kept).items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
