"""Whether two builds differ, from runs of both that took turns. Numbers in, words out: no files, no clock.

A comparison has several witnesses. Each is judged alone, and says one of three things:

  same          the 90 % interval of the change lies within the witness's margin
  different     by a permutation of the runs, and by more than LEAST; the estimate is of medians
  inconclusive  neither; with an estimate of how many more pairs it takes

Runs go before, after, after, before, and so on: blocks of two pairs. What drifts from block to block (a neighbour that
comes or goes) is taken out with the block's median, and labels are exchanged within blocks only. ALPHA is the chance of a
false "different" in one whole comparison, shared by all its witnesses (Holm). Counts that repeat (instructions) are
exact: they differ when they moved by more than their own spread between two runs of one build.

With fewer pairs than that takes, a witness that knows what parts of each run cost (its windows: bursts, or pieces of its time)
is judged by those: two runs of one build are taken to differ by as much as the windows of one run do, and by what the runs of
each side do. So one pair can tell what is far beyond that, and nothing else; `p` says how sure that is, `more` what is missing.
That this holds is judged on runs recorded on a machine busy with other work (tests/samples/windows.json).

test_verdict.py holds the share of false claims and the power against data whose truth is known."""

import functools
import itertools
import math
import random
import statistics
from dataclasses import dataclass, field

SAME, DIFFERENT, INCONCLUSIVE = "same", "different", "inconclusive"
MARGIN, LEAST, LEVEL, ALPHA = 0.03, 0.01, 0.90, 0.002
EXACT_LEAST = 0.005
PAIRS_FEWEST, PAIRS_MOST = 6, 400
EXCHANGES, RESAMPLES = (1000, 50000), 1000


@dataclass
class Witness:
    """One measure of every run, in order of time; `before` and `after` have one value a pair."""
    name: str
    kind: str                 # "CPU", "count", "latency", "memory": the word in the verdict
    before: list
    after: list
    unit: str = ""
    margin: float = MARGIN
    decides: bool = True      # "same" waits for it
    exact: bool = False       # repeats; `before` may hold several runs of one build, for the spread
    least: float = 0.005      # of an exact one: less is no difference
    floor: float = 0.0        # likewise, in the witness' own unit
    spreads: float = 3        # likewise, of the larger spread between two runs of one build
    windows: tuple = ()       # (befores, afters): of each run the values of its windows


@dataclass
class Judgement:
    witness: Witness
    verdict: str
    before: float
    after: float
    change: float             # after/before - 1
    low: float
    high: float
    p: float = 1.0
    more: int = 0             # pairs
    why: list = field(default_factory=list)  # functions, for people
    varies: float = 0.0       # what one run varies by, where its windows told it

    def words(self):
        text = f"{self.witness.name} {self.change:+.1%}"
        return text + (f" ({', '.join(self.why)})" if self.why else "")


def blocks_of(before, after):
    """Logarithms without the block's own level: [(befores, afters)] of two pairs each, the last may have one."""
    found = []
    for at in range(0, len(before), 2):
        b, a = ([math.log(value) for value in side[at:at + 2]] for side in (before, after))
        level = statistics.median(b + a)
        found.append(([value - level for value in b], [value - level for value in a]))
    return found


def effect(blocks):
    return (statistics.median(value for _, after in blocks for value in after)
            - statistics.median(value for before, _ in blocks for value in before))


def shifts(block):
    """The difference of the block's sums, for each way to hand out its labels; the observed one is the first."""
    before, after = block
    values, total = after + before, sum(before) + sum(after)
    return [2 * sum(way) - total for way in itertools.combinations(values, len(after))]


def exchanges(ways, count, chance):
    """Sums over blocks with labels handed out anew within each: in every way when there are at most `count`, else at random."""
    if math.prod(map(len, ways)) <= count:
        return map(sum, itertools.product(*ways))
    return (sum(map(chance.choice, ways)) for _ in range(count))


def permutation_p(blocks, chance):
    """How often chance alone gives an effect at least as large; where not every way is looked at, the observed one counts too.
    What may be a difference is looked at more closely."""
    values = [value for block in blocks for side in block for value in side]
    middle = statistics.median(values)
    reach = 4 * statistics.median(abs(value - middle) for value in values) or math.inf
    # A run that is far out counts as one at the edge. Medians themselves tie too often to be exchanged.
    ways = [shifts([[max(min(value, middle + reach), middle - reach) for value in side] for side in block]) for block in blocks]
    observed = abs(sum(way[0] for way in ways)) - 1e-9
    for count in EXCHANGES:
        found = [abs(value) >= observed for value in exchanges(ways, count, chance)]
        unseen = math.prod(map(len, ways)) > count
        p = (sum(found) + unseen) / (len(found) + unseen)
        if p > 0.01 or not unseen:
            break
    return p


def pairs_for(limit):
    """So many pairs it takes until the clearest difference (one of two ways among all) is less likely than `limit` by chance."""
    pairs, ways = 2, math.comb(4, 2)
    while 2 / ways > limit:
        pairs, ways = pairs + 2, ways * math.comb(4, 2)
    return pairs


def bootstrap(blocks, chance):
    """The interval of the effect; runs are drawn again within their side."""
    before = [value for b, _ in blocks for value in b]
    after = [value for _, a in blocks for value in a]
    draws = sorted(statistics.median(chance.choices(after, k=len(after)))
                   - statistics.median(chance.choices(before, k=len(before))) for _ in range(RESAMPLES))
    cut = int(RESAMPLES * (1 - LEVEL) / 2)
    return draws[cut], draws[-1 - cut]


def more_pairs(pairs, change, width, margin, limit):
    """An interval narrows with the square root of the pairs: how many more until it lies within the margin, or leaves 0 and
    chance is less likely than `limit`."""
    width = max(width, 1e-4)
    aims = [PAIRS_MOST]
    if abs(change) < margin:
        aims.append(max(math.ceil(pairs * (width / (margin - abs(change))) ** 2), PAIRS_FEWEST))
    if abs(change) > LEAST:  # chance's limit is about twice as far out
        aims.append(max(math.ceil(pairs * (2 * width / (abs(change) - LEAST)) ** 2), pairs_for(limit)))
    return max(min(aims) - pairs, 2)


def judge_exact(witness):
    """Runs of one build beside each other tell the spread; one run alone has none."""
    before, after = statistics.median(witness.before), statistics.median(witness.after)
    spread = max(max(side) - min(side) for side in (witness.before, witness.after))
    if before == 0:
        change = 0.0 if after <= witness.floor else math.inf
    else:
        change, spread = after / before - 1, spread / before
    limit = max(witness.least, witness.spreads * spread, witness.floor / before if before else 0.0)
    verdict = DIFFERENT if abs(change) > limit else SAME if limit <= witness.margin else INCONCLUSIVE
    return Judgement(witness, verdict, before, after, change, change - limit, change + limit, 0.0,
                     2 if verdict == INCONCLUSIVE else 0)


def judge_pairs(witness, seed=1):
    """All but the verdict, which depends on the others."""
    pairs = min(len(witness.before), len(witness.after))
    b, a = witness.before[:pairs], witness.after[:pairs]
    if pairs == 0 or min(b + a) <= 0:
        # What was never there before and is in nearly every run now (a system call that nobody made).
        some = max(b, a, key=max) if pairs else []
        appeared = (pairs >= 2 and (max(b) == 0) != (max(a) == 0)
                    and sum(value > 0 for value in some) >= max(2, 0.8 * pairs))
        gone = statistics.median(b) if b else 0.0, statistics.median(a) if a else 0.0
        change = math.inf if appeared and max(b) == 0 else -1.0 if appeared else 0.0
        return Judgement(witness, DIFFERENT if appeared else INCONCLUSIVE, *gone, change, change, change,
                         0.0 if appeared else 1.0, PAIRS_FEWEST)
    chance = random.Random(seed)
    blocks = blocks_of(b, a)
    low, high = bootstrap(blocks, chance)
    p = permutation_p(blocks, chance) if pairs >= 2 else 1.0
    change = math.exp(effect(blocks)) - 1
    return Judgement(witness, INCONCLUSIVE, statistics.median(b), statistics.median(a), change, math.exp(low) - 1,
                     math.exp(high) - 1, p)


# ---- few runs, by their windows ----

PERMUTED_FROM = 12            # pairs; with fewer, chance alone may put all runs on one side
WINDOWS_FEWEST = 4            # of a run
VARIES_LEAST = 0.02           # what two runs of one build differ by where nothing else is known: where code and memory lie
PROBABLY = 0.05


def beta_part(a, b, x):
    """The regularised incomplete beta function, by its continued fraction (Lentz)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_part(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(1 - x)) / a
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 300):
        for part in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                     -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d, c = 1.0 / (1.0 + part * d), 1.0 + part / c
            found *= c * d
        if abs(c * d - 1.0) < 1e-12:
            break
    return front * found


def t_chance(t, freedom):
    """How often Student's t lies as far from 0, on either side."""
    return beta_part(freedom / 2, 0.5, freedom / (freedom + t * t))


@functools.cache
def t_limit(chance, freedom):
    """How far from 0 it lies as often as `chance`."""
    low, high = 0.0, 1.0
    while t_chance(high, freedom) > chance:
        high *= 2
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if t_chance(middle, freedom) > chance else (low, middle)
    return high


def can_use_windows(witness):
    pairs = min(len(witness.before), len(witness.after))
    return (0 < pairs < PERMUTED_FROM and len(witness.windows) == 2 and all(
        len(side) >= pairs and all(len(run) >= WINDOWS_FEWEST and min(run) > 0 for run in side[:pairs])
        for side in witness.windows))


@dataclass
class Spread:
    """What one run varies by, as a variance of logarithms, and how well that is known."""
    inside: float
    freedom: int


def spread_inside(witness):
    runs = [[math.log(value) for value in run] for side in witness.windows for run in side]
    freedom = sum(len(run) - 1 for run in runs)
    return Spread(sum(statistics.variance(run) * (len(run) - 1) for run in runs) / freedom, freedom)


def judge_windows(witness, usual):
    """All but the verdict. `usual`: the spread of all witnesses of the comparison, which counts as much as the witness's own:
    five windows may lie close to each other by chance."""
    pairs = min(len(witness.before), len(witness.after))
    own = spread_inside(witness)
    inside = max((own.inside * own.freedom + usual.inside * usual.freedom) / (own.freedom + usual.freedom), VARIES_LEAST ** 2)
    runs = [[statistics.fmean(math.log(value) for value in run) for run in side[:pairs]] for side in witness.windows]
    expected = inside * (1 + 1 / min(len(run) for side in witness.windows for run in side))
    freedom = own.freedom + usual.freedom
    variance = expected
    if pairs > 1:
        seen = statistics.fmean(statistics.variance(side) for side in runs)
        if seen > 2 * expected:  # the runs differ by more than their windows tell: only they count
            variance, freedom = seen, 2 * (pairs - 1)
        else:
            variance = (expected * freedom + seen * 2 * (pairs - 1)) / (freedom + 2 * (pairs - 1))
            freedom += 2 * (pairs - 1)
    change = statistics.fmean(runs[1]) - statistics.fmean(runs[0])
    error = math.sqrt(variance * 2 / pairs)
    reach = t_limit(1 - LEVEL, freedom) * error
    found = Judgement(witness, INCONCLUSIVE, statistics.median(witness.before), statistics.median(witness.after),
                      math.expm1(change), math.expm1(change - reach), math.expm1(change + reach),
                      t_chance(abs(change) / error, freedom), varies=math.expm1(math.sqrt(variance)))
    return found, freedom


def more_by_windows(judgement, freedom, limit):
    """How many more pairs until it can be told, one way or the other, if all goes on as it began."""
    pairs = min(len(judgement.witness.before), len(judgement.witness.after))
    change, spread = abs(math.log1p(judgement.change)), math.log1p(judgement.varies)

    def is_told(more):
        error = spread * math.sqrt(2 / (pairs + more))
        different = change > LEAST and t_limit(limit, freedom + 2 * more) * error + LEAST < change
        return different or (pairs + more >= PAIRS_FEWEST and
                             t_limit(1 - LEVEL, freedom + 2 * more) * error + change < judgement.witness.margin)

    low, high = 0, PAIRS_MOST - pairs
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_told(middle) else (middle, high)
    return high


def judge_few(witnesses):
    """{place: (judgement, freedom)} of those that have windows and too few pairs for anything else."""
    able = {place: witness for place, witness in enumerate(witnesses) if not witness.exact and can_use_windows(witness)}
    spreads = [spread_inside(witness) for witness in able.values()]
    if not spreads:
        return {}
    usual = Spread(statistics.median(spread.inside for spread in spreads), min(spread.freedom for spread in spreads))
    return {place: judge_windows(witness, usual) for place, witness in able.items()}


def judge(witnesses, seed=1):
    """Every witness's judgement, in their order."""
    few = judge_few(witnesses)
    found = [few[i][0] if i in few else judge_exact(w) if w.exact else judge_pairs(w, seed + i) for i, w in enumerate(witnesses)]
    open_ones = sorted((j for j in found if not j.witness.exact and j.verdict != DIFFERENT), key=lambda j: j.p)
    for rank, judgement in enumerate(open_ones):  # Holm: the smallest p has to stand against all
        if judgement.p > ALPHA / (len(open_ones) - rank):
            break
        if judgement.low > LEAST or judgement.high < -LEAST:
            judgement.verdict = DIFFERENT
    freedoms = {id(judgement): freedom for judgement, freedom in few.values()}
    for judgement in open_ones:
        pairs = min(len(judgement.witness.before), len(judgement.witness.after))
        margin = judgement.witness.margin
        if judgement.verdict == DIFFERENT:
            continue
        if pairs >= PAIRS_FEWEST and judgement.low != judgement.high and -margin <= judgement.low and judgement.high <= margin:
            judgement.verdict = SAME
        elif id(judgement) in freedoms:
            judgement.more = more_by_windows(judgement, freedoms[id(judgement)], ALPHA / len(open_ones))
        elif judgement.more == 0:
            judgement.more = more_pairs(pairs, judgement.change, (judgement.high - judgement.low) / 2, margin,
                                        ALPHA / len(open_ones))
    return found


def likely(judgements):
    """Those that may be different, though it is not sure: all false ones together in PROBABLY of comparisons; the surest first."""
    open_ones = sorted((j for j in judgements if not j.witness.exact), key=lambda j: j.p)
    found = []
    for rank, judgement in enumerate(open_ones):
        if judgement.p > PROBABLY / (len(open_ones) - rank):
            break
        if judgement.verdict == INCONCLUSIVE and judgement.varies > 0:
            found.append(judgement)
    return found


def overall(judgements):
    """(verdict, those that speak for it, more pairs)."""
    different = [j for j in judgements if j.verdict == DIFFERENT]
    if different:
        return DIFFERENT, sorted(different, key=lambda j: (not j.witness.exact, -min(abs(j.change), 1e9))), 0
    undecided = [j for j in judgements if j.witness.decides and j.verdict == INCONCLUSIVE]
    if undecided or not any(j.witness.decides for j in judgements):
        return INCONCLUSIVE, undecided, max((j.more for j in undecided), default=PAIRS_FEWEST)
    return SAME, [j for j in judgements if j.witness.decides], 0


# ---- what may not be compared ----

SCENARIO = ("scenario", "options", "mode", "window")
MACHINE = ("cpu", "cores", "kernel", "memory_mb")
BUILD = ("compiler", "flags", "allocator", "librdkafka", "libpq", "cmake")


def refusals(before, after):
    """Why the two can't be compared at all; `before` and `after` are what is known of each side, by name."""
    return [f"{name}: {before.get(name)} against {after.get(name)}" for name in (*SCENARIO, *MACHINE)
            if before.get(name) != after.get(name)]


def build_differences(before, after):
    """What of the builds differs, though not by the change under test."""
    return [f"{name}: {before.get(name) or 'unknown'} → {after.get(name) or 'unknown'}" for name in BUILD
            if before.get(name) != after.get(name)]


# ---- functions ----

def moved(before, after, least):
    """Functions by group: {group: (before, after, [(gain, name)])}, of {(group, name): cost of an event}. Cost that went
    from one function to another of its group is no change of the group: only those whose sum moved by `least` (a part)
    have causes."""
    found = {}
    for group in sorted({group for group, _ in {*before, *after}}):
        names = {name for which, name in {*before, *after} if which == group}
        gains = sorted(((after.get((group, n), 0) - before.get((group, n), 0), n) for n in names),
                       key=lambda row: abs(row[0]), reverse=True)
        sums = [sum(side.get((group, n), 0) for n in names) for side in (before, after)]
        changed = sums[0] == 0 or abs(sums[1] / sums[0] - 1) > least
        sign = 1 if sums[1] >= sums[0] else -1
        found[group] = (*sums, [row for row in gains if row[0] * sign > 0 and changed])
    return found
