"""Model servers. One small file per server family; `base` holds what they share."""
