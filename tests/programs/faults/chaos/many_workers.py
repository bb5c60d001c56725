from faults.toolbox import Add, digest, in_time, loader, undisturbed

reference = undisturbed([Add()], records=2000)
iterator = iter(loader([Add()], records=2000, workers=64))
with in_time(20):
    assert digest(iterator) == reference
