import prometheus_client

import gristmill as grain
from gristmill import monitoring

monitoring.start()
monitoring.start()
list(grain.MapDataset.range(64).to_iter_dataset().batch(2))
print(prometheus_client.generate_latest().decode())
