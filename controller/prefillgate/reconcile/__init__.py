"""What is to be done about a serving line: a pure function of what was seen of it, the time among that.

`snapshot` is everything a decision may look at, `effects` everything that may come of it. Nothing here reads a clock,
writes a log or speaks to anything: the loop in `prefillgate.app` observes, asks, and carries out.
"""
