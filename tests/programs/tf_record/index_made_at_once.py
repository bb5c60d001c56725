import sys

from gristmill import sources

print("here", flush=True)
input()
source = sources.TFRecordDataSource(sys.argv[1])
print(len(source), len(source[199_999]))
