"""A snapshot turned into bytes: metrics, the landing page, JSON, the support report."""
