"""What a run chooses by measurement: all of it on chains that are discarded.

A kernel chosen by looking at a chain depends on its state, and a chain that continues with such a
kernel leaves no target invariant, however it was started. So everything here is chosen by
separate chains: they begin at blanks filled at random, never at the user's texts; they share no
random numbers with other chains; and the choice is made, recorded and frozen before the first step
of a run.
"""
