"""What every Groundplane process needs: settings, logs, clock, metrics, errors as HTTP answers."""
