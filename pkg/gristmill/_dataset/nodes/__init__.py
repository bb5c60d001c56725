"""The nodes of chains by their kinds; methods make those that `builds` registers.

They import `model` and one another, downward.  Begin with `map.py`.
"""
