import resource
import sys

from gristmill import sources

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (50, most))
print(len(list(sources.TFRecordDataSource(sys.argv[1]))))
