"""pass@k and maj@k against all subsets, intervals against hand numbers, moments against numpy."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlgym_llm import estimators
from rlgym_llm.estimators import maj_at_k, pass_at_k
from rlgym_llm.intervals import mean_and_interval
from rlgym_llm.moments import Moments

COUNTS = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)
VOTES = st.lists(
    st.tuples(st.sampled_from([None, "a", "b", "c", "d"]), st.booleans()), min_size=1, max_size=8
)
NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


class TestPassAtK:
    def test_by_hand(self):
        # Of the 6 pairs of 4 samples only one holds neither of the 2 right ones.
        assert pass_at_k(4, 2, 2) == pytest.approx(1 - 1 / 6)
        assert pass_at_k(4, 1, 1) == 0.25
        assert pass_at_k(4, 0, 4) == 0.0
        assert pass_at_k(4, 3, 2) == 1.0
        # The plug-in 1 - (1 - 1/10)^5 = 0.41 is biased; the share of subsets is a half.
        assert pass_at_k(10, 1, 5) == pytest.approx(0.5)

    @given(COUNTS)
    def test_is_one_minus_a_ratio_of_binomials(self, counts):
        n, c, k = counts
        assert pass_at_k(n, c, k) == pytest.approx(1 - math.comb(n - c, k) / math.comb(n, k))

    @given(st.integers(1, 7), st.data())
    def test_is_the_share_of_subsets_that_hold_a_right_one(self, n, data):
        right = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
        k = data.draw(st.integers(1, n))
        subsets = list(itertools.combinations(right, k))
        share = sum(any(subset) for subset in subsets) / len(subsets)
        assert pass_at_k(n, sum(right), k) == pytest.approx(share)

    @given(COUNTS)
    def test_bounds_and_order(self, counts):
        n, c, k = counts
        value = pass_at_k(n, c, k)
        assert 0 <= value <= 1
        assert pass_at_k(n, c, n) == float(c > 0)
        if k < n:
            assert pass_at_k(n, c, k + 1) >= value - 1e-12
        if c < n:
            assert pass_at_k(n, c + 1, k) >= value - 1e-12

    def test_huge_counts_do_not_overflow(self):
        assert pass_at_k(100_000, 10, 1_000) == pytest.approx(1 - 0.99**10, rel=1e-3)

    @pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
    def test_impossible_counts_are_refused(self, n, c, k):
        with pytest.raises(ValueError, match=r"cannot be right|k must be from 1 to"):
            pass_at_k(n, c, k)


def vote(answers, correct):
    """What one subset's majority vote is worth, spelled out."""
    votes = Counter(answer for answer in answers if answer is not None)
    winners = [answer for answer in votes if votes[answer] == max(votes.values())]
    total = 0.0
    for winner in winners:
        verdicts = [c for a, c in zip(answers, correct, strict=True) if a == winner]
        total += sum(verdicts) / len(verdicts) / len(winners)
    return total


class TestMajAtK:
    def test_by_hand(self):
        answers, correct = ["5", "5", "7", None], [True, True, False, False]
        assert maj_at_k(answers, correct, 4) == 1.0
        assert maj_at_k(answers, correct, 1) == pytest.approx(0.5)
        # 55: 1; 57 twice: 1/2 each; 5- twice: 1 each; 7-: 0; of 6.
        assert maj_at_k(answers, correct, 2) == pytest.approx(4 / 6)

    def test_ties_share(self):
        assert maj_at_k(["5", "7"], [True, False], 2) == pytest.approx(0.5)
        assert maj_at_k(["5", "7", "9"], [True, False, False], 3) == pytest.approx(1 / 3)

    def test_no_answer_never_wins_unless_alone(self):
        assert maj_at_k([None, None, None, "5"], [False] * 3 + [True], 4) == pytest.approx(1.0)
        assert maj_at_k([None, None], [True, True], 2) == 0.0

    @given(VOTES)
    def test_is_the_mean_over_all_subsets(self, votes):
        answers, correct = zip(*votes, strict=True)
        for k in range(1, len(votes) + 1):
            values = [
                vote([answers[i] for i in subset], [correct[i] for i in subset])
                for subset in itertools.combinations(range(len(votes)), k)
            ]
            assert maj_at_k(answers, correct, k) == pytest.approx(sum(values) / len(values))

    @given(VOTES)
    def test_order_of_samples_does_not_matter(self, votes):
        answers, correct = zip(*votes, strict=True)
        for k in range(1, len(votes) + 1):
            turned = maj_at_k(answers[::-1], correct[::-1], k)
            assert turned == pytest.approx(maj_at_k(answers, correct, k))

    def test_one_vote_is_the_share_of_right_ones(self):
        answers = ["5", "5", "5", "7", "9", None, "1", "1"]
        assert maj_at_k(answers, [a == "5" for a in answers], 1) == 0.375

    def test_counts_and_chances_agree(self, monkeypatch):
        answers = ["5"] * 9 + ["7"] * 8 + ["9"] * 3 + [None] * 5
        correct = [answer == "5" for answer in answers]
        counted = maj_at_k(answers, correct, 11)
        monkeypatch.setattr(estimators, "_MOST_COUNTED", 0)
        assert maj_at_k(answers, correct, 11) == pytest.approx(counted, rel=1e-12)

    def test_large_counts(self):
        # 720 of 1,200 votes are right and two answers stand: 501 of them can hardly lose.
        value = maj_at_k(["5"] * 720 + ["7"] * 480, [True] * 720 + [False] * 480, 501)
        assert 0.999 < value <= 1.0

    def test_mistakes_are_refused(self):
        with pytest.raises(ValueError, match="2 answers but 1 verdicts"):
            maj_at_k(["5", "7"], [True], 1)
        with pytest.raises(ValueError, match="number of samples, 2; got 3"):
            maj_at_k(["5", "7"], [True, False], 3)


class TestMeanAndInterval:
    def test_wilson_by_hand(self):
        # p = 0.9, n = 100: (0.9 + 0.0192 +- 1.96 sqrt(0.0009 + 0.000096)) / 1.0384
        assert mean_and_interval([1] * 90 + [0] * 10) == pytest.approx(
            (0.9, 0.8256, 0.9448), abs=1e-4
        )
        # p = 1: the low end is n / (n + z^2).
        assert mean_and_interval([1] * 10) == pytest.approx((1.0, 10 / 13.8415, 1.0), abs=1e-4)
        assert mean_and_interval([0.0] * 10) == pytest.approx(
            (0.0, 0.0, 3.8415 / 13.8415), abs=1e-4
        )

    @pytest.mark.parametrize(
        ("df", "quantile"),
        [(1, 12.7062), (2, 4.30265), (4, 2.77645), (9, 2.26216), (29, 2.04523), (120, 1.97993)],
    )
    def test_student_by_table(self, df, quantile):
        values = np.arange(df + 1) * 2.0
        half = quantile * np.std(values, ddof=1) / math.sqrt(df + 1)
        assert mean_and_interval(values) == pytest.approx((df, df - half, df + half), abs=1e-4)

    def test_moments_give_the_same(self):
        values = [0.2, 0.9, -3.0, 4.5]
        parts = Moments.of(values[:1]).merge(Moments.of(values[1:]))
        assert mean_and_interval(parts) == pytest.approx(mean_and_interval(values))
        votes = Moments.of([1, 0]).merge(Moments.of([1, 1]))
        assert mean_and_interval(votes) == pytest.approx(mean_and_interval([1, 0, 1, 1]))

    def test_one_number_bounds_nothing(self):
        assert mean_and_interval([0.3]) == (0.3, -math.inf, math.inf)
        assert mean_and_interval([0.3, 0.4], groups=["a", "a"]) == (0.35, -math.inf, math.inf)
        assert mean_and_interval([1]).low > 0

    def test_equal_groups_are_as_good_as_their_means(self):
        values = [0.1, 0.3, 0.8, 0.6, 0.5, 0.2]
        clustered = mean_and_interval(values, groups=["a", "a", "b", "b", "c", "c"])
        assert clustered == pytest.approx(mean_and_interval([0.2, 0.7, 0.35]))

    def test_unequal_groups_by_hand(self):
        # mean 2; group sums of deviations (-2, +2); se^2 = 2/1 * (4 + 4) / 9; t(1) = 12.706
        half = 12.7062 * math.sqrt(16 / 9)
        found = mean_and_interval([1.0, 1.0, 4.0], groups=["a", "a", "b"])
        assert found == pytest.approx((2, 2 - half, 2 + half), rel=1e-5)

    def test_groups_of_one_change_nothing(self):
        values = [0.1, 0.3, 0.8]
        assert mean_and_interval(values, groups=[0, 1, 2]) == pytest.approx(
            mean_and_interval(values)
        )

    def test_verdicts_of_one_prompt_count_once(self):
        # Four prompts, all right or all wrong 100 times: se^2 = 4/3 * (3 * 25^2 + 75^2) / 400^2
        # = 0.0625, so 0.1875 / se^2 = 3 verdicts; t(399) = 1.966, t(3) = 3.182.
        verdicts = [1] * 300 + [0] * 100
        clustered = mean_and_interval(verdicts, groups=[i // 100 for i in range(400)])
        assert clustered == pytest.approx(_wilson(0.75, 3 * (1.96593 / 3.18245) ** 2), rel=1e-4)
        # All right: the 3 prompts count and not the 12 verdicts.
        assert mean_and_interval([1] * 12, groups=[i // 4 for i in range(12)]) == pytest.approx(
            mean_and_interval([1] * 3)
        )
        # Prompts that all have the mean tell nothing new: never surer than independent verdicts.
        alike = mean_and_interval([1, 0] * 10, groups=[i // 2 for i in range(20)])
        assert alike == pytest.approx(mean_and_interval([1, 0] * 10))

    @given(NUMBERS, st.data())
    def test_the_mean_lies_within(self, values, data):
        groups = data.draw(st.lists(st.integers(0, 4), min_size=len(values), max_size=len(values)))
        for found in (mean_and_interval(values), mean_and_interval(values, groups=groups)):
            assert found.low <= found.mean <= found.high
            assert found.mean == pytest.approx(np.mean(values), abs=1e-9)

    @given(st.lists(st.booleans(), min_size=1, max_size=40), st.data())
    def test_verdicts_stay_between_0_and_1(self, verdicts, data):
        groups = data.draw(
            st.lists(st.integers(0, 4), min_size=len(verdicts), max_size=len(verdicts))
        )
        plain, clustered = mean_and_interval(verdicts), mean_and_interval(verdicts, groups=groups)
        for found in (plain, clustered):
            assert 0 <= found.low <= found.mean <= found.high <= 1
        assert clustered.high - clustered.low >= plain.high - plain.low - 1e-9

    def test_mistakes_are_refused(self):
        with pytest.raises(ValueError, match="no numbers"):
            mean_and_interval([])
        with pytest.raises(ValueError, match="finite"):
            mean_and_interval([1.0, math.nan])
        with pytest.raises(ValueError, match="2 numbers but 1 groups"):
            mean_and_interval([1.0, 2.0], groups=["a"])
        with pytest.raises(ValueError, match="no longer tell the groups"):
            mean_and_interval(Moments.of([1.0]), groups=["a"])


def _wilson(p, n, z=1.959964):
    centre, scale = p + z * z / (2 * n), 1 + z * z / n
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return p, (centre - half) / scale, (centre + half) / scale


class TestMoments:
    def test_by_hand(self):
        # deviations of 1, 2, 6 from 3: 4 + 1 + 9
        assert Moments.of([1, 2, 6]) == Moments(count=3, mean=3.0, m2=14.0, low=1.0, high=6.0)
        assert Moments.of([1, 2, 6]).variance == 7.0
        assert math.isnan(Moments.of([1]).variance)

    @given(NUMBERS, NUMBERS, NUMBERS)
    def test_parts_amount_to_the_whole(self, a, b, c):
        merged = Moments.of(a).merge(Moments.of(b)).merge(Moments.of(c))
        whole = Moments.of(a + b + c)
        assert (merged.count, merged.low, merged.high) == (whole.count, whole.low, whole.high)
        assert merged.low <= merged.mean <= merged.high
        assert merged.mean == pytest.approx(whole.mean, abs=1e-6)
        assert merged.m2 == pytest.approx(whole.m2, rel=1e-9, abs=1e-6)

    @given(NUMBERS)
    def test_nothing_changes_nothing(self, values):
        moments = Moments.of(values)
        assert moments.merge(Moments()) == moments == Moments().merge(moments)

    def test_a_large_offset_costs_no_digits(self):
        # sum(x^2) - sum(x)^2 / n is 0 or worse here, at 16 digits.
        parts = [Moments.of([1e9 + i]) for i in (4, 7, 13, 16)]
        merged = parts[0].merge(parts[1]).merge(parts[2]).merge(parts[3])
        assert merged.variance == pytest.approx(30.0)

    def test_float32_is_summed_in_float64(self):
        values = np.full(100_000, 0.1, dtype=np.float32)
        assert Moments.of(values).mean == pytest.approx(float(np.float32(0.1)), rel=1e-12)

    def test_what_is_not_finite_is_refused(self):
        with pytest.raises(ValueError, match="finite"):
            Moments.of([1.0, math.inf])
