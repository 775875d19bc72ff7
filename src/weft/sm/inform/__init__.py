"""Who hears of what: traps in, reports to subscribers out."""
