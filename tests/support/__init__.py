"""What tests share: the ledger of real programs, and the rules of a whole run."""
