"""What a run chooses by measurement, on chains that are discarded."""
