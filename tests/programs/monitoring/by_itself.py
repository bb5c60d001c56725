import json
import sys

import gristmill  # noqa: F401
from gristmill import monitoring

print(json.dumps([monitoring.is_on(), "prometheus_client" in sys.modules]))
