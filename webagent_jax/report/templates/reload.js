// Page that waits for a result. A Refresh header would not load an address with a fragment again.

setTimeout(() => location.reload(), 2000);
