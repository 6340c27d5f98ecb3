"""Named regions: a listener publishes memory under a name, and sessions find it by that name.
Provides Publication, Publisher and Pull. May depend on memory/ and below only."""
