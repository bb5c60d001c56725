import sys

from gristmill import sources

source = sources.TFDSDataSource(sys.argv[1])
print(
    source[0]["text"].decode()[:4],
    {"tensorflow", "tensorflow_datasets", "google.protobuf"} & {*sys.modules},
)
