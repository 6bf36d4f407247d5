"""Names, types, units, labels and the number of series, against the metric contract."""
