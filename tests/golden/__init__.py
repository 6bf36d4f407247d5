"""Whole metrics pages over AMD's real libraries, byte for byte, and every number traced back."""
