"""The checker that the import hook applies: beartype, with `int` allowed where `float` is asked."""

from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
