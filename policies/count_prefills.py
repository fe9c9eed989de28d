"""A notebook in plain Python (each `# %%` is a cell): from replies that somebody kept to the prefills behind them.

Run it as it stands: `python policies/count_prefills.py`. It needs the package and nothing else.
"""

# %% What was kept: the body that was sent, the reply that came back. Here made up, as a review bot might have kept it.
from prefillgate.library import classify, count_prefills, decide, read_reply, score

LONG = {"pull request 1": 16896, "pull request 2": 11136}  # prompt tokens


def asked(prompt):
    return {"messages": [{"role": "user", "content": f"Review {prompt}."}], "temperature": 0}


def answered(prompt, cached, text):
    """A reply of llama-server: of the prompt's tokens `cached` came from its cache, the rest was processed."""
    total = LONG[prompt]
    return {
        "choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": total, "completion_tokens": 5},
        "timings": {"cache_n": cached, "prompt_n": total - cached},
    }


BARE = "VERDICT: LGTM"
GOOD = "The loop stops one element early, so the last row is never written.\nVERDICT: CHANGES"

traffic = []
for prompt, total in LONG.items():
    for number in range(6):
        text = GOOD if (prompt, number) == ("pull request 2", 5) else BARE
        traffic.append(("candidate", asked(prompt), answered(prompt, total - 4 if number else 0, text)))
    for number in range(10):
        traffic.append(("baseline", asked(prompt), answered(prompt, total - 4 if number else 0, GOOD)))

# %% Replies to cells, and each judged by the default checks (a verdict without a reason is bad).
replies = [reply for arm, body, kept in traffic for reply in read_reply(kept, body, arm=arm)]
cells = score(replies)

# %% Which request was a prefill of its own?
for item in classify(cells)[:3]:
    print(f"{item.cell.arm}: {item.cell_class}, {item.witness}")

# %% Requests beside prefills.
for arm, it in count_prefills(cells).items():
    print(f"{arm}: {it.bad_requests} of {it.requests} requests bad, {it.bad_prefills} of {it.prefills} prefills")

# %% What the rules answer from this alone.
verdict = decide(cells, "standard")
by = verdict.comparison
print(f"p by request {by.fisher_by_request:.1e}, by prefill {by.fisher_by_prefill:.3f}")
print(f"promotion {verdict.decision.promotion}, rollback {verdict.decision.rollback}")
