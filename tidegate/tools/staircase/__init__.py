"""Watermarks over time as the end of an ordered topic tells them: events by arrival and time, and the promise of each input partition."""
