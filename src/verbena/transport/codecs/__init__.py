"""Codecs: calls whose arguments and results are Python values. A program names one at both ends of a session.
Provides codec_for(), Codec, encoding(). May depend on memory/ and below only."""
